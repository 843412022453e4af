//! `deed crash-test`: kill a batch everywhere, and say what each tool really does.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use deed::boundary::Boundary;
use deed::crash_test::{Case, CaseReport, CrashTest, CrashTestError, Progress, Report};
use deed_journal::Digest;
use etcetera::BaseStrategy;
use indicatif::{ProgressBar, ProgressStyle};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use super::exit::Exit;
use super::failure::Usage;
use super::output::{Format, out};
use super::{Global, hosting, journal_path, output};

#[derive(Debug, Args)]
pub(super) struct CrashTestArgs {
    /// The mission or batch: a JSON file. It, its workspace and its remotes are copied, and not touched.
    file: PathBuf,
    /// Kill again at every point of the recovery.
    #[arg(long)]
    double: bool,
    /// Let the power go in so many further cases: what the journal had not synced is lost, torn or reordered.
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    storage: usize,
    /// Try only so many cases, chosen by the seed.
    #[arg(long, value_name = "N")]
    sample: Option<usize>,
    /// Kill only over the calls of this tool; may be given several times.
    #[arg(long, value_name = "TOOL")]
    only: Vec<String>,
    /// Kill only at this point, such as `after_exec`; may be given several times.
    #[arg(long, value_name = "POINT", value_parser = boundary)]
    at: Vec<Boundary>,
    /// Try this case alone, as a report names it.
    #[arg(long, value_name = "CASE", conflicts_with_all = ["double", "storage", "sample", "only", "at"])]
    case: Option<Case>,
    /// Cases at a time; by default one for each processor.
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// Where ids, samples and power cuts come from.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Where the directories of failed cases are kept; by default in the user's state directory, for the last test of
    /// each file.
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// Write a report as one page of HTML.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Write a report as XML, as continuous integration reads it.
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
}

fn boundary(text: &str) -> Result<Boundary, String> {
    let known = Boundary::ALL.map(Boundary::as_str);
    let found = Boundary::ALL.into_iter().find(|boundary| boundary.as_str() == text);
    found.ok_or_else(|| format!("expected one of {}", known.join(", ")))
}

pub(super) fn run(global: &Global, args: &CrashTestArgs) -> Result<Exit> {
    let stop = stop_on_signal()?;
    let test = test(global, args)?;
    let progress = Shown::new();
    let report = match test.run(&progress, &stop) {
        Err(CrashTestError::Stopped) => {
            progress.bar.finish_and_clear();
            eprintln!("{}", CrashTestError::Stopped);
            return Ok(Exit::Failed);
        }
        report => report?,
    };
    progress.bar.finish_and_clear();
    let write = |path: &Option<PathBuf>, text: &dyn Fn(&Report) -> String| match path {
        None => Ok(()),
        Some(path) => std::fs::write(path, text(&report))
            .with_context(|| format!("failed to write `{}`", path.display())),
    };
    write(&args.report, &Report::to_html)?;
    write(&args.junit, &Report::to_junit)?;
    match global.format {
        Format::Json => output::json(&report)?,
        Format::Text => out!("{}", output::printable(report.to_text().trim_end())),
    }
    for certificate in &report.certificates {
        if global.verbose > 0 {
            eprintln!("certificate: {}", certificate.display());
        }
    }
    Ok(if report.holds { Exit::Done } else { Exit::Failed })
}

fn test(global: &Global, args: &CrashTestArgs) -> Result<CrashTest> {
    if args.sample == Some(0) || args.jobs == Some(0) {
        return Err(Usage("`--sample` and `--jobs` take at least 1".to_owned()).into());
    }
    let deed = std::env::current_exe().context("failed to find this program's own file")?;
    let jobs = args.jobs.or_else(|| std::thread::available_parallelism().ok().map(usize::from));
    let keep = match &args.keep {
        Some(keep) => keep.clone(),
        None => own_keep(&args.file)?,
    };
    let mut test = CrashTest::new(deed, &args.file)
        .seed(args.seed)
        .jobs(jobs.unwrap_or(1))
        .power_cuts(args.storage)
        .keep(keep);
    if args.double {
        test = test.double();
    }
    if let Some(workspace) = &global.workspace {
        test = test.workspace(workspace);
    }
    if let Some(tools) = &global.tools {
        test = test.tools(tools);
    }
    if let Some(sample) = args.sample {
        test = test.sample(sample);
    }
    if let Some(case) = args.case {
        test = test.case(case);
    }
    if let Some(config) = hosting::config_dir() {
        test = test.config_dir(config);
    }
    if let Some(certificates) = certificates_dir() {
        test = test.certificates(certificates);
    }
    test = args.only.iter().fold(test, CrashTest::only);
    Ok(args.at.iter().fold(test, |test, at| test.at(*at)))
}

/// Where certificates are.
pub(super) fn certificates_dir() -> Option<PathBuf> {
    etcetera::choose_base_strategy().ok().map(|strategy| strategy.data_dir().join("deed").join("crash-tests"))
}

/// The place of the last test of a file, emptied.
fn own_keep(file: &Path) -> Result<PathBuf> {
    let file = file.canonicalize().unwrap_or_else(|_| file.to_owned());
    let name = Digest::of(file.as_os_str().as_encoded_bytes()).to_string();
    let keep = journal_path::state_dir()?.join("crash-tests").join(&name[..16]);
    match std::fs::remove_dir_all(&keep) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("failed to empty `{}`", keep.display()))
        }
        _ => Ok(keep),
    }
}

/// SIGINT and SIGTERM end the test: what is under way is killed, its directories are removed, and what was tried is
/// shown. That takes a moment, and a second signal does not cut it short.
fn stop_on_signal() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT] {
        flag::register(signal, Arc::clone(&stop)).context("failed to handle signals")?;
    }
    Ok(stop)
}

/// A bar with the time left on a terminal, lines elsewhere.
struct Shown {
    bar: ProgressBar,
}

impl Shown {
    fn new() -> Self {
        let style = ProgressStyle::with_template("{spinner} {msg}").expect("the template is well formed");
        let bar = ProgressBar::new_spinner().with_style(style);
        bar.enable_steady_tick(Duration::from_millis(120));
        Self { bar }
    }
}

impl Progress for Shown {
    fn phase(&self, what: &str) {
        self.bar.set_message(what.to_owned());
    }

    fn begin(&self, cases: usize) {
        let style = ProgressStyle::with_template("{bar:30} {pos} of {len} cases, {eta} left {msg}")
            .expect("the template is well formed");
        self.bar.set_message("");
        self.bar.set_style(style);
        self.bar.set_length(cases as u64);
        self.bar.set_position(0);
        if self.bar.is_hidden() {
            eprintln!("{cases} cases");
        }
    }

    fn done(&self, case: &CaseReport) {
        self.bar.inc(1);
        if !case.fails {
            return;
        }
        let (name, row, verdict) = (&case.case, case.row(), case.verdict.as_str());
        let text = output::printable(&format!("{name}: `{row}`: {verdict}"));
        if self.bar.is_hidden() {
            eprintln!("{text}");
        } else {
            self.bar.println(text);
        }
    }
}
