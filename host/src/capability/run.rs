//! `deed:tool/run`: what a call tells its host while it runs.

use std::sync::Arc;

use wasmtime::component::{HasData, Linker};

use crate::engine::Limit;
use crate::engine::bindings::deed::tool::run;
use crate::engine::limits::{LOG_LINE_BYTES, RECEIPT_BYTES};
use crate::engine::request::{CallObserver, CancelToken, LogLevel};

/// Who listens to one call.
pub(crate) struct RunCtx {
    observer: Arc<dyn CallObserver>,
    cancel: CancelToken,
    lines: u32,
    lines_allowed: u32,
}

impl RunCtx {
    /// `lines_allowed` of it are passed on.
    pub(crate) fn new(observer: Arc<dyn CallObserver>, cancel: CancelToken, lines_allowed: u32) -> Self {
        Self { observer, cancel, lines: 0, lines_allowed }
    }

    /// Whether one more line may reach the observer; says once that no further ones do.
    fn admit_line(&mut self) -> bool {
        self.lines = self.lines.saturating_add(1);
        let allowed = self.lines_allowed;
        if self.lines == allowed.saturating_add(1) {
            let message =
                format!("more than {allowed} lines; further ones are dropped ({})", Limit::LogLines);
            self.observer.log(LogLevel::Warn, &message);
        }
        self.lines <= allowed
    }
}

/// How a store's data reaches who listens.
pub(crate) trait RunView: Send {
    fn run(&mut self) -> RunCtxView<'_>;
}

pub(crate) struct RunCtxView<'a>(pub(crate) &'a mut RunCtx);

struct HasRun;

impl HasData for HasRun {
    type Data<'a> = RunCtxView<'a>;
}

/// Offer `deed:tool/run`.
pub(crate) fn add_to_linker<T: RunView + 'static>(linker: &mut Linker<T>) -> wasmtime::Result<()> {
    run::add_to_linker::<T, HasRun>(linker, T::run)
}

impl run::Host for RunCtxView<'_> {
    fn log(&mut self, level: run::Level, message: String) -> wasmtime::Result<()> {
        let level = match level {
            run::Level::Debug => LogLevel::Debug,
            run::Level::Info => LogLevel::Info,
            run::Level::Warn => LogLevel::Warn,
            run::Level::Error => LogLevel::Error,
        };
        if self.0.admit_line() {
            self.0.observer.log(level, cut(&message));
        }
        Ok(())
    }

    fn progress(&mut self, done: u64, total: Option<u64>, message: String) -> wasmtime::Result<()> {
        if self.0.admit_line() {
            self.0.observer.progress(done, total, cut(&message));
        }
        Ok(())
    }

    fn cancelled(&mut self) -> wasmtime::Result<bool> {
        Ok(self.0.cancel.is_cancelled())
    }

    fn checkpoint(&mut self, receipt: Vec<u8>) -> wasmtime::Result<Result<(), String>> {
        if receipt.len() > RECEIPT_BYTES {
            let size = receipt.len();
            return Ok(Err(format!("a receipt of {size} bytes; at most {RECEIPT_BYTES} are kept")));
        }
        Ok(self.0.observer.checkpoint(&receipt))
    }
}

/// The part of a line that is passed on.
fn cut(message: &str) -> &str {
    &message[..message.floor_char_boundary(LOG_LINE_BYTES)]
}
