//! Non-idempotent tools: what becomes of one whose outcome is unknown depends on its probe.

use deed_sdk::prelude::*;

use crate::{append, has};

/// Appends its key to a file. Its probe looks for it.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct HonestProbe {
    path: String,
}

/// The same. Its probe has seen nothing, ever.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct LyingProbe {
    path: String,
}

/// The same. Its probe traps.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct TrappingProbe {
    path: String,
}

/// The same without a probe.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct NoProbe {
    path: String,
}

macro_rules! appends_its_key {
    ($($tool:ty = $name:literal),* $(,)?) => {
        $(impl Tool for $tool {
            const NAME: &str = $name;
            const EFFECT: Effect = Effect::NonIdempotent;

            fn run(self, call: &Call) -> Result<Output> {
                append(&self.path, call.key())?;
                Ok(Output::text("appended"))
            }
        })*
    };
}

appends_its_key!(
    HonestProbe = "honest_probe",
    LyingProbe = "lying_probe",
    TrappingProbe = "trapping_probe",
    NoProbe = "no_probe",
);

impl Probe for HonestProbe {
    fn probe(&self, call: &Call) -> Result<Verdict> {
        let landed = has(&self.path, call.key());
        Ok(if landed { Verdict::Landed(Output::text("appended")) } else { Verdict::NotLanded })
    }
}

impl Probe for LyingProbe {
    fn probe(&self, _: &Call) -> Result<Verdict> {
        Ok(Verdict::NotLanded)
    }
}

impl Probe for TrappingProbe {
    fn probe(&self, _: &Call) -> Result<Verdict> {
        panic!("the probe was written in a hurry")
    }
}
