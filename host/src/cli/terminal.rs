//! The person at the terminal: a progress line, and questions asked in place.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::io::{BufRead, IsTerminal, Write};
use std::path::PathBuf;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

use deed::engine::{CompileObserver, LogLevel};
use deed::model::{Model, ModelAnswer, ModelError, ModelRequest};
use deed::watch::{Owner, Reply, Watcher};
use deed_journal::{Asked, StepKind};
use indicatif::{HumanBytes, MultiProgress, ProgressBar, ProgressStyle};

use super::output::printable;

/// Whether somebody is there to answer.
pub(super) fn is_interactive() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// Shows how far the repair of a journal is, on a terminal. Nothing is shown while there is nothing to repair.
pub(super) fn repair_progress() -> impl Fn(f64) + 'static {
    let bar = OnceCell::new();
    move |done| {
        let bar = bar.get_or_init(|| {
            let style =
                ProgressStyle::with_template("repairing the journal after a crash {bar:30} {percent}%")
                    .expect("the template is well formed");
            ProgressBar::new(1000).with_style(style)
        });
        // A thousandth more or less does not show.
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is between 0 and 1000"
        )]
        bar.set_position((done.clamp(0.0, 1.0) * 1000.0) as u64);
        if done >= 1.0 {
            bar.finish_and_clear();
        }
    }
}

/// Every line that moves, so that none is drawn over another.
static LINES: LazyLock<MultiProgress> = LazyLock::new(MultiProgress::new);

/// A line with a spinner, on a terminal.
fn spinner(template: &str) -> Option<ProgressBar> {
    std::io::stderr().is_terminal().then(|| {
        let style = ProgressStyle::with_template(template).expect("the template is well formed");
        let line = LINES.add(ProgressBar::new_spinner().with_style(style));
        line.enable_steady_tick(Duration::from_millis(120));
        line
    })
}

/// Components of at least so many bytes take seconds to compile: it is told where no terminal shows it. Those of interpreted
/// languages hold their interpreter; no standard plugin is a tenth of it.
const LONG_BYTES: usize = 4 << 20;

/// Shows what is compiled: a line each on a terminal, and of those that take long a line elsewhere.
#[derive(Debug, Default)]
pub(super) struct CompileLines(Mutex<BTreeMap<String, ProgressBar>>);

impl CompileObserver for CompileLines {
    fn began(&self, name: &str, bytes: usize) {
        let size = HumanBytes(bytes as u64);
        let text = format!("compiling `{name}` ({size}), which is kept");
        match spinner("{spinner} {msg} ({elapsed})") {
            Some(line) => {
                line.set_message(text);
                self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), line);
            }
            None if bytes >= LONG_BYTES => eprintln!("{text}"),
            None => {}
        }
    }

    fn ended(&self, name: &str) {
        let line = self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
        if let Some(line) = line {
            line.finish_and_clear();
        }
    }
}

/// Shows turn, step and tool: as one line on a terminal, as lines elsewhere when asked to say more.
pub(super) struct TerminalWatcher {
    line: Option<ProgressBar>,
    verbose: u8,
}

impl TerminalWatcher {
    pub(super) fn new(verbose: u8) -> Self {
        Self { line: spinner("{spinner} {msg} ({elapsed})"), verbose }
    }

    fn say(&self, text: &str) {
        match &self.line {
            Some(line) => line.println(text),
            None => eprintln!("{text}"),
        }
    }

    /// Run `work` with the progress line out of the way.
    fn aside<T>(&self, work: impl FnOnce() -> T) -> T {
        match &self.line {
            Some(_) => LINES.suspend(work),
            None => work(),
        }
    }
}

impl Drop for TerminalWatcher {
    fn drop(&mut self) {
        if let Some(line) = &self.line {
            line.finish_and_clear();
        }
    }
}

impl Watcher for TerminalWatcher {
    fn step(&self, turn: u64, seq: u64, kind: StepKind, name: &str) {
        let text = format!("turn {turn}, step {seq}: {} {name}", kind.as_str());
        match &self.line {
            Some(line) => line.set_message(text),
            None if self.verbose > 0 => eprintln!("{text}"),
            None => {}
        }
    }

    fn progress(&self, seq: u64, done: u64, total: Option<u64>, message: &str) {
        let of = total.map_or_else(String::new, |total| format!(" of {total}"));
        let text = format!("step {seq}: {done}{of} {}", printable(message));
        match &self.line {
            Some(line) => line.set_message(text),
            None if self.verbose > 0 => eprintln!("{text}"),
            None => {}
        }
    }

    fn log(&self, seq: u64, level: LogLevel, message: &str) {
        let word = match level {
            LogLevel::Debug if self.verbose < 2 => return,
            LogLevel::Info if self.verbose < 1 => return,
            LogLevel::Debug => "debug",
            LogLevel::Info => "info",
            LogLevel::Warn => "warning",
            LogLevel::Error => "error",
        };
        self.say(&format!("{word}: step {seq}: {}", printable(message)));
    }

    fn left_behind(&self, seq: u64, program: &str) {
        let program = printable(program);
        self.log(
            seq,
            LogLevel::Info,
            &format!("`{program}` left processes behind, which were ended with it"),
        );
    }
}

/// Asks the person at the terminal.
pub(super) struct TerminalOwner {
    watcher: Arc<TerminalWatcher>,
}

impl TerminalOwner {
    pub(super) fn new(watcher: Arc<TerminalWatcher>) -> Self {
        Self { watcher }
    }
}

impl Owner for TerminalOwner {
    fn ask(&self, question: &Asked) -> Option<Reply> {
        self.watcher.aside(|| ask(question, &mut std::io::stdin().lock(), &mut std::io::stderr()))
    }
}

/// Put a question and read lines until one of them is an answer: an option or its number, and anything the owner adds.
/// The end of input leaves the question open.
fn ask(question: &Asked, input: &mut impl BufRead, output: &mut impl Write) -> Option<Reply> {
    let asked = printable(&question.question);
    writeln!(output, "\n{} ({})\n{asked}", question.id, question.kind.as_str()).ok()?;
    for (number, option) in (1..).zip(&question.options) {
        writeln!(output, "  {number}  {}", printable(option)).ok()?;
    }
    loop {
        write!(output, "answer (an option, and a text if you like; empty leaves it open): ").ok()?;
        output.flush().ok()?;
        let mut line = String::new();
        if input.read_line(&mut line).ok()? == 0 || line.trim().is_empty() {
            return None;
        }
        if let Some(reply) = parse(question, line.trim()) {
            return Some(reply);
        }
        writeln!(output, "`{}` is none of: {}", line.trim(), question.options.join(", ")).ok()?;
    }
}

fn parse(question: &Asked, line: &str) -> Option<Reply> {
    let added = |rest: &str| Some(rest.trim().to_owned()).filter(|text| !text.is_empty());
    // The longest option that the line begins with: one may begin with another.
    let begins = |option: &&String| {
        line.strip_prefix(option.as_str())
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace))
    };
    let by_name = question.options.iter().filter(begins).max_by_key(|option| option.len());
    let by_name = by_name.map(|option| Reply { option: option.clone(), text: added(&line[option.len()..]) });
    by_name.or_else(|| {
        let (number, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let option = question.options.get(number.parse::<usize>().ok()?.checked_sub(1)?)?;
        Some(Reply { option: option.clone(), text: added(rest) })
    })
}

/// A model whose requests are also written to a file.
pub(super) struct LoggedModel {
    inner: Box<dyn Model>,
    path: PathBuf,
}

impl LoggedModel {
    pub(super) fn new(inner: Box<dyn Model>, path: PathBuf) -> Self {
        Self { inner, path }
    }

    fn log(&self, request: &ModelRequest<'_>) -> std::io::Result<()> {
        let line =
            serde_json::json!({ "run": request.run, "seq": request.seq, "messages": request.messages });
        let mut file = std::fs::OpenOptions::new().append(true).create(true).open(&self.path)?;
        // One write, so that a kill leaves whole lines.
        file.write_all(format!("{line}\n").as_bytes())
    }
}

impl Model for LoggedModel {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn respond(&self, request: &ModelRequest<'_>) -> Result<ModelAnswer, ModelError> {
        self.log(request)
            .map_err(|error| ModelError(format!("failed to write `{}`: {error}", self.path.display())))?;
        self.inner.respond(request)
    }
}

#[cfg(test)]
mod tests {
    use deed_journal::{RunId, WaitId, WaitKind};

    use super::*;

    fn answer(typed: &str) -> (Option<Reply>, String) {
        let question = Asked {
            id: WaitId { run: RunId::from_bytes([1; 16]), seq: 4, revision: 1 },
            kind: WaitKind::Reconcile,
            name: "shell".into(),
            question: "Did it?".into(),
            options: vec!["happened".into(), "did-not-happen".into()],
            opened_ms: 0,
            expires_ms: None,
        };
        let mut shown = Vec::new();
        let reply = ask(&question, &mut typed.as_bytes(), &mut shown);
        (reply, String::from_utf8(shown).unwrap())
    }

    #[test]
    fn an_option_its_number_or_either_with_a_text_is_an_answer() {
        let reply = |option: &str, text: Option<&str>| {
            Some(Reply { option: option.into(), text: text.map(str::to_owned) })
        };
        assert_eq!(answer("happened\n").0, reply("happened", None));
        assert_eq!(answer("2\n").0, reply("did-not-happen", None));
        assert_eq!(answer("1 saw it land\n").0, reply("happened", Some("saw it land")));
        assert_eq!(answer("did-not-happen  sure\n").0, reply("did-not-happen", Some("sure")));
    }

    #[test]
    fn an_option_that_begins_with_another_is_not_taken_for_it() {
        let question = Asked {
            id: WaitId { run: RunId::from_bytes([1; 16]), seq: 4, revision: 1 },
            kind: WaitKind::Question,
            name: "ask_owner".into(),
            question: "\u{1b}[2JShall it?".into(),
            options: vec!["no".into(), "no way".into()],
            opened_ms: 0,
            expires_ms: None,
        };
        let mut shown = Vec::new();
        let reply = ask(&question, &mut "no way at all\n".as_bytes(), &mut shown);
        assert_eq!(reply, Some(Reply { option: "no way".into(), text: Some("at all".into()) }));
        assert!(!shown.contains(&0x1b), "a model cannot redraw the screen");
    }

    #[test]
    fn anything_else_is_asked_again_and_the_end_of_input_leaves_it_open() {
        let (reply, shown) = answer("perhaps\n3\nhappened\n");
        assert_eq!(reply.unwrap().option, "happened");
        assert!(shown.contains("`perhaps` is none of: happened, did-not-happen"), "{shown}");
        assert!(shown.contains("`3` is none of"), "{shown}");
        assert_eq!(answer("").0, None);
        assert_eq!(answer("\n").0, None);
    }
}
