//! What a test that was passed leaves: a certificate for each component, bound to its digest.
//!
//! It says what was swept, and proves nothing to those who do not trust whoever keeps it: it is a note of the user's own.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use deed_journal::{Digest, EffectClass};
use serde::{Deserialize, Serialize};

use super::CrashTestError;
use super::report::Report;

/// That the tools of a component kept all they claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Certificate {
    /// The component.
    pub component: Digest,
    /// The plugin that it was.
    pub plugin: String,
    /// The version of deed that swept it.
    pub deed: String,
    /// The mission or batch.
    pub file: PathBuf,
    /// The seed.
    pub seed: u64,
    /// Its tools, as far as they were swept.
    pub tools: Vec<CertifiedTool>,
}

/// A tool that was swept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertifiedTool {
    /// Its name.
    pub name: String,
    /// The class it declares.
    pub declared: EffectClass,
    /// Its calls in the run.
    pub calls: usize,
    /// Cases at each point, by the point's name; `power cut` is one.
    pub cases: BTreeMap<String, usize>,
}

impl Certificate {
    /// The certificate of a component in a directory of such, if there is one that can be read.
    pub fn read(directory: &Path, component: Digest) -> Option<Self> {
        let text = fs::read_to_string(place(directory, component)).ok()?;
        let certificate: Self = serde_json::from_str(&text).ok()?;
        (certificate.component == component).then_some(certificate)
    }
}

fn place(directory: &Path, component: Digest) -> PathBuf {
    directory.join(format!("{component}.json"))
}

/// Write one for each component of a complete test whose tools hold, and take back that of one whose tools do not.
pub(super) fn issue(report: &Report, directory: &Path) -> Result<Vec<PathBuf>, CrashTestError> {
    let mut components: BTreeMap<Digest, Vec<_>> = BTreeMap::new();
    for tool in &report.tools {
        if let Some(digest) = tool.digest {
            components.entry(digest).or_default().push(tool);
        }
    }
    let mut written = Vec::new();
    for (component, tools) in components {
        let path = place(directory, component);
        if !tools.iter().all(|tool| tool.holds) {
            match fs::remove_file(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(CrashTestError::io("remove", &path)(error));
                }
                _ => continue,
            }
        }
        // What the tester cannot be believed about, or did not try, it does not certify.
        if !report.complete
            || report.controls.is_empty()
            || !report.controls.iter().all(super::Control::holds)
        {
            continue;
        }
        let swept = tools.iter().map(|tool| CertifiedTool {
            name: tool.name.clone(),
            declared: tool.declared,
            calls: tool.calls,
            cases: report
                .columns()
                .into_iter()
                .map(|column| (column.as_str().to_owned(), report.of_cell(&tool.name, column).count()))
                .filter(|(_, count)| *count > 0)
                .collect(),
        });
        let certificate = Certificate {
            component,
            plugin: tools[0].plugin.clone(),
            deed: report.version.to_owned(),
            file: report.file.clone(),
            seed: report.seed,
            tools: swept.collect(),
        };
        let text = serde_json::to_string_pretty(&certificate).expect("a certificate has text keys only");
        fs::create_dir_all(directory).map_err(CrashTestError::io("create", directory))?;
        fs::write(&path, text + "\n").map_err(CrashTestError::io("write", &path))?;
        written.push(path);
    }
    Ok(written)
}
