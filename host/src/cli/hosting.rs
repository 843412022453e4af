//! Setting up a host: engine, plugins, journal.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use deed::beside::Beside;
use deed::boundary::{Boundaries, KillPoint, Unarmed};
use deed::capability::{CommandEnvironment, GitEnvironment};
use deed::crash_test::Trace;
use deed::engine::{CancelToken, Engine, EngineConfig, Limits};
use deed::model::Model;
use deed::operator::{EngineSettings, FILE_NAME, OperatorFile};
use deed::plugin::installed::Installed;
use deed::policy::Operator;
use deed::runner::{Envelope, Host, OnUnknown, Runner};
use deed::sources::{FixedClock, SeededEntropy, SystemClock, SystemEntropy};
use deed::standard::standard_plugins;
use deed::toolbox::{PluginSource, RefusedPlugin, Toolbox};
use deed::watch::{Absent, Owner, Watcher};
use deed_journal::{Clock, Entropy, Journal, RunId};
use etcetera::BaseStrategy;

use super::failure::Usage;
use super::power_cut::PowerCut;
use super::terminal::{self, CompileLines, LoggedModel, TerminalOwner, TerminalWatcher};
use super::trace::{KillSelf, TracedPoints, TracedWatcher};
use super::{Global, credentials, journal_path, power_cut, signals};

/// What a crash test may ask of a command that executes steps.
#[derive(Debug, Args)]
pub(super) struct TestArgs {
    /// Kill this process (SIGKILL) at a point of a step, such as `2:after_exec`: to see what the next one makes of it.
    #[arg(long, value_name = "SEQ:POINT", help_heading = "Testing")]
    kill_at: Option<KillPoint>,
    /// Append every request to the model to this file, one JSON line each.
    #[arg(long, hide = true, value_name = "FILE")]
    model_log: Option<PathBuf>,
    /// Append to this file how calls end, one JSON line each.
    #[arg(long, hide = true, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Write every point that is crossed into the trace, too.
    #[arg(long, hide = true, requires = "trace")]
    trace_points: bool,
    /// Let the power go at this operation of the store.
    #[arg(long, hide = true, value_name = "OPERATION:SEED")]
    power_cut: Option<PowerCut>,
}

impl TestArgs {
    /// Become the owner of the journal, which others can reach; one whose power goes nobody can.
    pub(super) fn open(&self, global: &Global, path: &Path) -> Result<Journal> {
        match self.power_cut {
            None => journal_path::open_shared(global, path),
            Some(cut) => power_cut::open(path, journal_path::options(global), cut, self.trace()),
        }
    }

    fn trace(&self) -> Option<Trace> {
        self.trace.clone().map(Trace::new)
    }

    fn boundaries(&self) -> Arc<dyn Boundaries> {
        match (self.kill_at, self.trace()) {
            (Some(point), _) => Arc::new(KillSelf(point)),
            (None, Some(trace)) if self.trace_points => Arc::new(TracedPoints(trace)),
            (None, _) => Arc::new(Unarmed),
        }
    }
}

/// How a command that executes steps behaves when nobody is there.
#[derive(Debug, Args)]
pub(super) struct UnattendedArgs {
    /// What becomes of a call whose outcome only the owner can tell: `ask` and wait, `abandon` it and go on, or `fail`
    /// the run.
    #[arg(long, value_enum, default_value_t = OnUnknownArg::Ask, value_name = "WHAT")]
    on_unknown: OnUnknownArg,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum OnUnknownArg {
    Ask,
    Abandon,
    Fail,
}

impl From<OnUnknownArg> for OnUnknown {
    fn from(arg: OnUnknownArg) -> Self {
        match arg {
            OnUnknownArg::Ask => Self::Ask,
            OnUnknownArg::Abandon => Self::Abandon,
            OnUnknownArg::Fail => Self::Fail,
        }
    }
}

/// An engine with what commands, git and requests find. No compiled code is taken from `workspaces`.
pub(super) fn engine(workspaces: Vec<PathBuf>) -> Result<Engine> {
    let cache_dir = etcetera::choose_base_strategy().ok().map(|strategy| strategy.cache_dir().join("deed"));
    let EngineSettings { parallel_calls, stack_bytes } = engine_settings()?;
    let default = EngineConfig::default();
    let config = EngineConfig {
        // Both are within their range, which these types hold.
        parallel_calls: parallel_calls
            .and_then(|calls| calls.try_into().ok())
            .unwrap_or(default.parallel_calls),
        stack_bytes: stack_bytes.and_then(|bytes| bytes.try_into().ok()).unwrap_or(default.stack_bytes),
        cache_dir,
        workspaces,
        git: git_environment(),
        commands: CommandEnvironment {
            home: std::env::home_dir().and_then(|home| home.canonicalize().ok()),
            ..CommandEnvironment::default()
        },
        credentials: credentials::read(config_dir().as_deref())?,
        on_compile: Some(Arc::new(CompileLines::default())),
    };
    Ok(Engine::new(config)?)
}

/// What the user's own `deed.toml` says of the engine.
fn engine_settings() -> Result<EngineSettings> {
    let Some(directory) = config_dir() else { return Ok(EngineSettings::default()) };
    let file = OperatorFile::read(&directory.join(FILE_NAME)).map_err(|error| Usage(error.to_string()))?;
    Ok(file.unwrap_or_default().engine)
}

/// Open every plugin: the standard ones, the installed ones, and those of `--tools`. No compiled code is taken from
/// `workspaces`.
pub(super) fn toolbox(global: &Global, workspaces: Vec<PathBuf>) -> Result<Toolbox> {
    let engine = Arc::new(engine(workspaces)?);
    let (sources, refused) = all_plugins(global)?;
    Ok(open(global, &engine, &sources, refused))
}

/// The standard plugins, the installed ones and those of `--tools`, and which are not what was installed.
pub(super) fn all_plugins(global: &Global) -> Result<(Vec<PluginSource>, Vec<RefusedPlugin>)> {
    let (mut sources, refused) = plugins()?;
    if let Some(directory) = &global.tools {
        sources.extend(components_in(directory)?);
    }
    Ok((sources, refused))
}

/// Open plugins, and say which are refused.
pub(super) fn open(
    global: &Global,
    engine: &Arc<Engine>,
    sources: &[PluginSource],
    refused: Vec<RefusedPlugin>,
) -> Toolbox {
    let mut toolbox = Toolbox::load(Arc::clone(engine), sources);
    for refused in refused {
        toolbox.refuse(refused);
    }
    if let Some(warning) = engine.cache_warning().filter(|_| global.verbose > 0) {
        eprintln!("warning: {warning}");
    }
    for refused in toolbox.refused() {
        eprintln!("warning: {refused}");
    }
    toolbox
}

/// The standard plugins and the installed ones, and which of those are not what was installed.
pub(super) fn plugins() -> Result<(Vec<PluginSource>, Vec<RefusedPlugin>)> {
    let standard = standard_plugins().into_iter().map(|(name, bytes)| PluginSource::new(name, bytes));
    let (installed, refused) = match installed() {
        Some(installed) => installed.sources().map_err(|error| Usage(error.to_string()))?,
        None => (Vec::new(), Vec::new()),
    };
    Ok((standard.chain(installed).collect(), refused))
}

/// Where the user's plugins are installed; nowhere without a home.
pub(super) fn installed() -> Option<Installed> {
    let strategy = etcetera::choose_base_strategy().ok()?;
    Some(Installed::new(strategy.data_dir().join("deed/plugins"), &strategy.config_dir().join("deed")))
}

/// What of this process's environment the `git` program sees: what finds the user's configuration and credentials, and
/// the way to the network. Nothing that names a repository, or adds to the configuration.
const GIT_VARIABLES: [&str; 32] = [
    "HOME",
    "USER",
    "LOGNAME",
    "XDG_CONFIG_HOME",
    "XDG_CACHE_HOME",
    "XDG_DATA_HOME",
    "XDG_RUNTIME_DIR",
    "DBUS_SESSION_BUS_ADDRESS",
    "GNUPGHOME",
    "KRB5CCNAME",
    "KRB5_CONFIG",
    "SSH_AUTH_SOCK",
    "GIT_SSH",
    "GIT_SSH_COMMAND",
    "GIT_SSH_VARIANT",
    "GIT_CONFIG_GLOBAL",
    "GIT_CONFIG_SYSTEM",
    "GIT_CONFIG_NOSYSTEM",
    "GIT_EXEC_PATH",
    "GIT_SSL_CAINFO",
    "GIT_SSL_CAPATH",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "TMPDIR",
    "http_proxy",
    "https_proxy",
    "HTTPS_PROXY",
    "all_proxy",
    "ALL_PROXY",
    "no_proxy",
    "NO_PROXY",
    "TZ",
];

fn git_environment() -> GitEnvironment {
    let search_path = std::env::var_os("PATH").unwrap_or(GitEnvironment::default().search_path);
    let variables = GIT_VARIABLES.iter().filter_map(|name| Some((name.into(), std::env::var_os(name)?)));
    GitEnvironment { search_path, variables: variables.collect(), temporary: std::env::temp_dir() }
}

/// Every `*.wasm` in a directory, by name.
pub(super) fn components_in(directory: &Path) -> Result<Vec<PluginSource>> {
    let failed = || Usage(format!("failed to read the plugins in `{}`", directory.display()));
    let mut paths: Vec<_> = std::fs::read_dir(directory)
        .with_context(failed)?
        .map(|entry| Ok(entry?.path()))
        .collect::<std::io::Result<_>>()
        .with_context(failed)?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "wasm"));
    paths.sort();
    paths
        .into_iter()
        .map(|path| {
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let bytes =
                std::fs::read(&path).with_context(|| format!("failed to read `{}`", path.display()))?;
            Ok(PluginSource::new(name, bytes))
        })
        .collect()
}

/// Where the user's own `deed.toml` is.
pub(super) fn config_dir() -> Option<PathBuf> {
    etcetera::choose_base_strategy().ok().map(|strategy| strategy.config_dir().join("deed"))
}

/// Read what the operator says for a run in `workspace`, before anything is written: a run that cannot be taken on
/// would hold the workspace.
pub(super) fn check_operator(workspace: &Path) -> Result<()> {
    Operator::read(workspace, config_dir().as_deref())?;
    Ok(())
}

/// The wall clock.
pub(super) fn clock(global: &Global) -> Arc<dyn Clock> {
    match global.deterministic {
        Some(_) => Arc::new(FixedClock),
        None => Arc::new(SystemClock),
    }
}

/// Randomness for the owner of a journal: each draws other ids, also from one seed.
pub(super) fn entropy(global: &Global, journal: &Journal) -> Arc<dyn Entropy> {
    match global.deterministic {
        Some(seed) => Arc::new(SeededEntropy::new(seed, journal.generation())),
        None => Arc::new(SystemEntropy),
    }
}

/// A host over an open journal.
pub(super) fn host(
    global: &Global,
    test: &TestArgs,
    unattended: &UnattendedArgs,
    toolbox: Toolbox,
    (path, journal): (&Path, Journal),
) -> Host {
    let (clock, entropy) = (clock(global), entropy(global, &journal));
    let watcher = Arc::new(TerminalWatcher::new(global.verbose));
    let owner: Arc<dyn Owner> = if terminal::is_interactive() {
        Arc::new(TerminalOwner::new(Arc::clone(&watcher)))
    } else {
        Arc::new(Absent)
    };
    let cancel = CancelToken::new();
    Host {
        journal: Arc::new(journal),
        toolbox,
        clock,
        entropy,
        boundaries: test.boundaries(),
        watcher: match test.trace() {
            Some(trace) => Arc::new(TracedWatcher { inner: watcher, trace }),
            None => watcher as Arc<dyn Watcher>,
        },
        config_dir: config_dir(),
        beside: Some(Beside::new(path)),
        locks_dir: journal_path::state_dir().ok().map(|state| state.join("workspaces")),
        on_unknown: unattended.on_unknown.into(),
        owner,
        limits: Limits::default(),
        stop: signals::obey(cancel.clone()),
        cancel,
    }
}

/// Take a run on until it ends or waits.
pub(super) fn drive(host: &Host, test: &TestArgs, run: RunId) -> Result<Envelope> {
    let runner = Runner::load(host, run)?;
    let log = |model: Box<dyn Model>| -> Box<dyn Model> {
        match &test.model_log {
            Some(path) => Box::new(LoggedModel::new(model, path.clone())),
            None => model,
        }
    };
    let envelope = runner.map_model(log).drive()?;
    host.drop_settled();
    Ok(envelope)
}
