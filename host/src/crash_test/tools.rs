//! What tools declare, as `deed tools` lists it.

use std::collections::BTreeMap;

use deed_journal::{Digest, EffectClass};
use serde::Deserialize;
use serde_json::Value;

use super::CrashTestError;

/// A tool and what it declares.
#[derive(Debug, Clone)]
pub(super) struct ToolRow {
    pub(super) plugin: String,
    pub(super) effect: EffectClass,
    pub(super) digest: Option<Digest>,
    pub(super) probes: bool,
    pub(super) open_world: bool,
}

#[derive(Deserialize)]
struct Listed {
    name: String,
    plugin: String,
    effect: EffectClass,
    #[serde(default)]
    traits: Vec<String>,
    digest: Option<Digest>,
}

pub(super) fn read(rows: Vec<Value>) -> Result<BTreeMap<String, ToolRow>, CrashTestError> {
    let row = |value: Value| {
        let listed: Listed =
            serde_json::from_value(value).map_err(|error| CrashTestError::Read(error.to_string()))?;
        let has = |name: &str| listed.traits.iter().any(|word| word == name);
        let row = ToolRow {
            effect: listed.effect,
            digest: listed.digest,
            probes: has("probes"),
            open_world: has("open-world"),
            plugin: listed.plugin,
        };
        Ok((listed.name, row))
    };
    rows.into_iter().map(row).collect()
}
