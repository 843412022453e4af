//! The report as text.

use std::fmt::Write as _;

use comfy_table::{ContentArrangement, Table, presets};

use super::report::{Cell, Report};

impl Report {
    /// A table of one row a tool and one column a point, and below it what was found.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for control in &self.controls {
            if !control.holds() {
                let found = control.found.map_or("nothing", super::Verdict::as_str);
                let _ = writeln!(
                    text,
                    "the tester cannot be believed: of the control `{}` it finds `{found}` and not `{}`",
                    control.name,
                    control.expected.as_str()
                );
            }
        }
        let columns = self.columns();
        let mut table = Table::new();
        table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
        table.set_header(["", "class"].into_iter().chain(columns.iter().map(|column| column.as_str())));
        for row in self.rows() {
            let class = self.tools.iter().find(|tool| tool.name == row).map_or_else(String::new, |tool| {
                let marks = [(tool.contained, "contained"), (tool.probes, "probe")];
                let marks = marks.into_iter().filter_map(|(is, word)| is.then_some(word));
                [tool.declared.to_string()]
                    .into_iter()
                    .chain(marks.map(str::to_owned))
                    .collect::<Vec<_>>()
                    .join(", ")
            });
            let cells =
                columns.iter().map(|column| self.cell(&row, *column).map_or("–".to_owned(), Cell::text));
            table.add_row([row.clone(), class].into_iter().chain(cells));
        }
        let _ = writeln!(text, "{}", trimmed(&table.to_string()));
        for finding in &self.findings {
            let mark = match finding.kind {
                super::FindingKind::Suggestion => "suggestion: ",
                super::FindingKind::Note => "note: ",
                _ => "",
            };
            let _ = writeln!(text, "\n{mark}`{}`: {}", finding.tool, finding.message);
            if !finding.kind.is_failure() {
                continue;
            }
            if let Some(case) =
                finding.cases.iter().find_map(|case| self.cases.iter().find(|it| it.case == *case))
            {
                let others = match finding.cases.len() {
                    1 => String::new(),
                    count => format!(" (and {} more)", count - 1),
                };
                let _ = writeln!(text, "  killed at {}{others}", case.case);
                let _ = writeln!(text, "  again: {}", case.replay);
                if let Some(kept) = &case.kept {
                    let _ = writeln!(text, "  kept:  {}", kept.display());
                }
            }
        }
        let _ = writeln!(text, "\n{}", self.summary());
        text
    }

    /// The last line: what was tried, and what came of it.
    pub fn summary(&self) -> String {
        let controls = match (self.controls.len(), self.controls.iter().all(super::Control::holds)) {
            (0, _) => "no controls".to_owned(),
            (count, true) => format!("{count} controls told apart"),
            (_, false) => "the controls were not told apart".to_owned(),
        };
        let failed = self.cases.iter().filter(|case| case.fails).count();
        let verdict = match (self.holds, self.interrupted, failed) {
            (true, ..) => "every claim holds".to_owned(),
            (false, true, failed) => format!("stopped; {failed} failed by then"),
            (false, false, 0) => "not every claim holds".to_owned(),
            (false, false, failed) => format!("{failed} failed"),
        };
        let tried = match (self.cases.len(), self.planned) {
            (1, 1) => "1 case".to_owned(),
            (tried, planned) if tried == planned => format!("{tried} cases"),
            (tried, planned) => format!("{tried} of {planned} cases"),
        };
        let seconds = self.elapsed_ms / 1000;
        let tenths = self.elapsed_ms % 1000 / 100;
        format!("{tried}, seed {}, {controls}, {seconds}.{tenths} s: {verdict}", self.seed)
    }
}

/// Without the blanks at the ends of lines.
fn trimmed(table: &str) -> String {
    table.lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
}
