//! `list_dir`.

use std::io;

use deed_sdk::prelude::*;

use crate::count;
use crate::refused::refused;

/// List a directory: one entry a line, in order, directories with a `/` at their end.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct ListDir {
    /// The directory, relative to the workspace; `.` is the workspace itself.
    #[serde(default = "root")]
    path: String,
}

fn root() -> String {
    ".".into()
}

/// What a model can still take in.
const LIMIT_ENTRIES: usize = 2_000;

impl Tool for ListDir {
    const NAME: &str = "list_dir";
    const TITLE: Option<&str> = Some("List directory");
    const EFFECT: Effect = Effect::Pure;

    fn run(self, _: &Call) -> Result<Output> {
        let names = names(&self.path).map_err(|error| refused("list", &self.path, error))?;
        Ok(Output::text(to_text(&self.path, names)))
    }
}

fn names(path: &str) -> io::Result<Vec<String>> {
    std::fs::read_dir(path)?
        .map(|entry| {
            let entry = entry?;
            let mark = if entry.file_type()?.is_dir() { "/" } else { "" };
            Ok(format!("{}{mark}", entry.file_name().to_string_lossy()))
        })
        .collect()
}

fn to_text(path: &str, mut names: Vec<String>) -> String {
    if names.is_empty() {
        return format!("`{path}` is empty\n");
    }
    names.sort_unstable();
    let mut text: String = names.iter().take(LIMIT_ENTRIES).map(|name| format!("{name}\n")).collect();
    if let Some(more) = names.len().checked_sub(LIMIT_ENTRIES).filter(|more| *more > 0) {
        text.push_str(&format!("[cut: {} more; `search` finds files by name]\n", count(more, "entry")));
    }
    text
}
