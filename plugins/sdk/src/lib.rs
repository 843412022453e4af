//! Write a `deed` tool as a Rust struct.
//!
//! `plugins/GUIDE.md` in deed's repository builds one step by step, and kills it; this page says what there is.
//!
//! # A first tool
//!
//! ```standalone_crate
//! use deed_sdk::prelude::*;
//!
//! /// Greet somebody by name.
//! #[derive(Deserialize, JsonSchema)]
//! struct Greet {
//!     /// Whom to greet.
//!     name: String,
//! }
//!
//! impl Tool for Greet {
//!     const NAME: &str = "greet";
//!     const EFFECT: Effect = Effect::Pure;
//!
//!     fn run(self, _: &Call) -> Result<Output> {
//!         Ok(Output::text(format!("Hello, {}!", self.name)))
//!     }
//! }
//!
//! deed_sdk::export!(Greet);
//! # fn main() {}
//! ```
//!
//! The struct is the tool's input: its documentation is the description that models read, its fields are the arguments,
//! and what does not fit is refused before `run`, naming the field. That holds for unknown fields, too; with
//! `#[serde(deny_unknown_fields)]` serde says so in its own words, and it is needed nowhere. Everything else about the
//! tool is a constant of [`Tool`] with a default: its title, time limit, traits and the type of its structured result.
//!
//! The crate is a `cdylib` that depends on `deed-sdk`, `serde` and `schemars` (the derives name them). Build it with
//! `cargo build --release --target wasm32-wasip2`: the file is a component, ready for `deed`.
//!
//! # Choosing a class
//!
//! [`Tool::EFFECT`] says what running a call again, or losing track of it, may do to the world. The host enforces it by
//! what it grants, and decides by it what happens to a call that was under way when the process died.
//!
//! | class | the tool promises | after a crash the host | its calls may |
//! |---|---|---|---|
//! | [`Pure`](Effect::Pure) | it changes nothing; it may observe | runs it again | read the workspace; run in parallel |
//! | [`Idempotent`](Effect::Idempotent) | twice with one key, nothing in between, is once | runs it again, same key, next attempt | write the workspace; commit |
//! | [`NonIdempotent`](Effect::NonIdempotent) | nothing | asks the tool's probe, then the owner | what policy grants |
//!
//! Choose the first that is true for every argument. Where the worst case is rare, implement [`Refine`] and name the
//! class of each call:
//!
//! ```
//! use deed_sdk::prelude::*;
//!
//! /// Send a request to the ticket system.
//! #[derive(Deserialize, JsonSchema)]
//! struct Ticket {
//!     method: String,
//!     path: String,
//! }
//!
//! impl Tool for Ticket {
//!     const NAME: &str = "ticket";
//!     const EFFECT: Effect = Effect::NonIdempotent;
//!     const OPEN_WORLD: bool = true;
//!
//!     fn run(self, _: &Call) -> Result<Output> {
//!         # unimplemented!()
//!         // …
//!     }
//! }
//!
//! impl Refine for Ticket {
//!     fn refine(&self) -> Option<Plan> {
//!         let plan = Plan::new(Effect::Idempotent, format!("replace {}", self.path)).on(&self.path);
//!         (self.method == "PUT").then_some(plan)
//!     }
//! }
//! ```
//!
//! # Exactly once: keys and receipts
//!
//! An idempotent tool that is run again should notice what it did before, and say the same. Three ways, the simplest
//! first:
//!
//! - The call states the result (*write this content*): look whether it is there.
//! - The other side recognises [`Call::key`], which is the same for every attempt: hand it over.
//! - Otherwise save a receipt before acting, and compare it with the world on the next attempt.
//!
//! ```
//! use deed_sdk::prelude::*;
//! use deed_sdk::workspace::{self, Expectation};
//!
//! /// Move the counter on by one.
//! #[derive(Deserialize, JsonSchema)]
//! struct Count {}
//!
//! /// What an attempt is about to do.
//! #[derive(Deserialize, Serialize)]
//! struct Step {
//!     from: u64,
//! }
//!
//! impl Tool for Count {
//!     const NAME: &str = "count";
//!     const EFFECT: Effect = Effect::Idempotent;
//!
//!     fn run(self, call: &Call) -> Result<Output> {
//!         let text = std::fs::read_to_string("counter")?;
//!         let now: u64 = text.trim().parse().map_err(|_| Error::conflict("failed to count: `counter` holds no number"))?;
//!         let from = match call.receipt::<Step>()? {
//!             Some(step) if now == step.from + 1 => return Ok(said(step.from).landed_before()),
//!             Some(step) if now == step.from => step.from,
//!             Some(_) => return Err(Error::conflict("failed to count: somebody else did").unknown()),
//!             None => now,
//!         };
//!         // Durable when it returns, so the next attempt has it whatever happens from here on.
//!         call.checkpoint(&Step { from })?;
//!         workspace::replace("counter", format!("{}\n", from + 1).as_bytes(), &Expectation::Whatever)?;
//!         Ok(said(from))
//!     }
//! }
//!
//! /// The text must not depend on the attempt: models read it.
//! fn said(from: u64) -> Output {
//!     Output::text(format!("counted to {}", from + 1))
//! }
//! ```
//!
//! # Probes
//!
//! A non-idempotent call is never run again blindly. A tool that can look whether its effect is there implements
//! [`Probe`], and spares the owner the question:
//!
//! ```
//! use deed_sdk::prelude::*;
//! # struct Bank;
//! # impl Bank { fn find(_: &str) -> Result<Option<u64>> { Ok(None) } fn pay(_: &str, _: u64) -> Result<()> { Ok(()) } }
//!
//! /// Pay an amount.
//! #[derive(Deserialize, JsonSchema)]
//! struct Pay {
//!     cents: u64,
//! }
//!
//! impl Tool for Pay {
//!     const NAME: &str = "pay";
//!     const EFFECT: Effect = Effect::NonIdempotent;
//!     const OPEN_WORLD: bool = true;
//!
//!     fn run(self, call: &Call) -> Result<Output> {
//!         // The bank stores the key with the payment, but does not refuse a second one with the same key.
//!         Bank::pay(call.key(), self.cents).map_err(Error::unknown)?;
//!         Ok(Output::text(format!("paid {} cents", self.cents)))
//!     }
//! }
//!
//! impl Probe for Pay {
//!     fn probe(&self, call: &Call) -> Result<Verdict> {
//!         Ok(match Bank::find(call.key())? {
//!             Some(cents) => Verdict::Landed(Output::text(format!("paid {cents} cents"))),
//!             // Not `NotLanded`: the request may still be on its way.
//!             None => Verdict::Undecidable("the bank has no such payment yet".into()),
//!         })
//!     }
//! }
//! ```
//!
//! # Errors
//!
//! An [`Error`] is what the model reads: what failed, the value, the next step. Its constructors state that nothing
//! changed; [`applied`](Error::applied) and [`unknown`](Error::unknown) say otherwise. `?` converts the errors of
//! [`std::io`] and of the capabilities. A panic is a fault of the tool: its message reaches the operator.
//!
//! # What a tool can reach
//!
//! Files of the workspace are plain [`std::fs`], with `/` as the workspace; [`workspace`] adds what is atomic and durable,
//! [`process`] runs commands, [`mod@git`] works on the repository, [`remote`] asks its remotes and pushes to them and
//! [`http`] asks servers, both where the operator granted it. [`std::time`] and randomness are recorded with the call and
//! equal on every attempt. A file that was opened to append reads nothing, wherever one seeks: open it a second time to look
//! at what an earlier attempt appended. Standard output and standard error go to the operator. A component imports only what its tools
//! use, and its class decides what of that a call is granted.

pub mod bindings;

mod arguments;
mod call;
mod error;
pub mod http;
mod output;
pub mod process;
mod registered;
mod tool;

pub use bindings::deed::git::{remote, repository as git};
pub use bindings::deed::workspace::files as workspace;
pub use call::{Call, CallContext};
pub use error::{EffectState, Error, ErrorKind, Result};
pub use output::{Blob, Content, Output};
pub use tool::{Effect, Plan, Probe, Refine, ResultType, Tool, Verdict};

/// What a tool's file needs: `use deed_sdk::prelude::*;`.
pub mod prelude {
    pub use schemars::JsonSchema;
    pub use serde::{Deserialize, Serialize};

    pub use crate::{Call, Effect, Error, Output, Plan, Probe, Refine, Result, ResultType, Tool, Verdict};
}

/// What [`export!`] expands to. Not for use by hand.
#[doc(hidden)]
pub mod macro_support {
    pub use crate::bindings::deed::tool::types::ToolDescriptor;
    pub use crate::bindings::exports::deed::tool::{reconcile, tools};
    pub use crate::registered::{
        Offers, OffersNothing, Registered, are_distinct, describe_all, invoke, probe, refine,
    };
}

/// Makes the crate a component that holds the named tools: `export!(ReadFile, WriteFile);`. Once per component.
///
/// Does not compile when two of the tools have one name. Sets the trait flags of those that implement
/// [`Refine`](crate::Refine) or [`Probe`](crate::Probe).
#[macro_export]
macro_rules! export {
    ($($tool:ty),+ $(,)?) => {
        const _: () = {
            use $crate::macro_support::{self as support, OffersNothing as _};

            const TOOLS: &[support::Registered] = &[$(
                support::Registered::new::<$tool>(
                    support::Offers::<$tool>::REFINE,
                    support::Offers::<$tool>::PROBE,
                )
            ),+];
            const { assert!(support::are_distinct(TOOLS), "two tools of one component have the same name") };

            struct Component;

            impl support::tools::Guest for Component {
                fn describe() -> ::std::vec::Vec<support::ToolDescriptor> {
                    support::describe_all(TOOLS)
                }

                fn refine(name: ::std::string::String, args: ::std::string::String) -> $crate::Result<$crate::Plan> {
                    support::refine(TOOLS, &name, &args)
                }

                fn invoke(
                    context: $crate::CallContext,
                    name: ::std::string::String,
                    args: ::std::string::String,
                ) -> $crate::Result<$crate::Output> {
                    support::invoke(TOOLS, context, &name, &args)
                }
            }

            impl support::reconcile::Guest for Component {
                fn probe(
                    context: $crate::CallContext,
                    name: ::std::string::String,
                    args: ::std::string::String,
                ) -> $crate::Result<$crate::Verdict> {
                    support::probe(TOOLS, context, &name, &args)
                }
            }

            $crate::bindings::export_guest!(Component with_types_in $crate::bindings);
        };
    };
}
