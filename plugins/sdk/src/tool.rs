//! [`Tool`] and what a tool may offer beyond it: [`Refine`] and [`Probe`].

use schemars::{JsonSchema, Schema, generate::SchemaSettings};
use serde::de::DeserializeOwned;

pub use crate::bindings::deed::tool::types::{EffectClass as Effect, EffectPlan as Plan};
pub use crate::bindings::exports::deed::tool::reconcile::Verdict;
use crate::call::Call;
use crate::error::Result;
use crate::output::Output;

/// A tool: a struct that holds its arguments.
///
/// The struct's documentation is the description that models read, each field's is that of the argument. Arguments that
/// do not fit, unknown ones included, are refused before [`run`](Self::run), naming the field and what was expected.
pub trait Tool: DeserializeOwned + JsonSchema {
    /// Fits `^[a-zA-Z0-9_-]{1,64}$`, which is checked when it is compiled. Unique within a host.
    const NAME: &'static str;

    /// The worst case over all arguments. What it promises is on the [crate's page](crate#choosing-a-class).
    const EFFECT: Effect;

    /// A short name for people. None makes one of the name: `read_file` becomes `Read file`.
    const TITLE: Option<&'static str> = None;

    /// Time limit of one call in milliseconds; the host's default when none.
    const TIMEOUT_MS: Option<u32> = None;

    /// May destroy what was there before.
    const DESTRUCTIVE: bool = false;

    /// Reaches beyond the workspace.
    const OPEN_WORLD: bool = false;

    /// The type of the data in [`Output::structured`], if there always is some.
    const RESULT: Option<ResultType> = None;

    /// Runs one call.
    fn run(self, call: &Call) -> Result<Output>;
}

/// A tool whose class is narrower for some arguments.
///
/// Implementing this is all there is to do: [`export!`](crate::export) sees it and sets the trait flag.
pub trait Refine: Tool {
    /// The class of this very call, or none to leave the declared one. Every capability is refused here, and the answer
    /// must be the same every time. The host ignores a plan above the declared class.
    fn refine(&self) -> Option<Plan>;
}

/// A tool that can tell whether a call landed.
///
/// Implementing this is all there is to do: [`export!`](crate::export) sees it and sets the trait flag.
pub trait Probe: Tool {
    /// Did the effect of this call land? Read-only: workspace, network and git alike. [`Verdict::NotLanded`] means that it
    /// cannot land any more; when in doubt, answer [`Verdict::Undecidable`], and the host asks the owner.
    fn probe(&self, call: &Call) -> Result<Verdict>;
}

/// The type of a tool's structured result.
#[derive(Clone, Copy, Debug)]
pub struct ResultType {
    schema: fn() -> Schema,
}

impl ResultType {
    /// The results are what `T` serialises to.
    pub const fn of<T: JsonSchema>() -> Self {
        Self { schema: schema_of::<T> }
    }

    pub(crate) fn schema(self) -> Schema {
        (self.schema)()
    }
}

/// JSON Schema 2020-12, the dialect that the interface prescribes; so no schema needs to repeat it.
pub(crate) fn schema_of<T: JsonSchema>() -> Schema {
    let mut settings = SchemaSettings::draft2020_12();
    settings.meta_schema = None;
    settings.into_generator().into_root_schema_for::<T>()
}

impl Plan {
    /// A class with one line for the owner, who may be asked to approve it.
    pub fn new(effect: Effect, summary: impl Into<String>) -> Self {
        Self { effect, target: None, summary: summary.into() }
    }

    /// Names the one thing that the call acts on: a path, a host.
    #[must_use]
    pub fn on(mut self, target: impl Into<String>) -> Self {
        self.target = Some(target.into());
        self
    }
}
