//! Write a `deed` tool as a Rust struct.

pub mod bindings;

mod arguments;
mod call;
mod error;
mod output;
pub mod process;
mod registered;
mod tool;

pub use bindings::deed::git::repository as git;
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

/// Makes the crate a component that holds the named tools. Once per component.
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
