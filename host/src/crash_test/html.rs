//! The report as one page of HTML, which asks nobody for anything: no script, no image, no font.
//!
//! A link to a case opens it: browsers open what a link leads into.

mod side;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::difference::Verdict;
use super::judge::{Finding, FindingKind};
use super::report::{CaseReport, Column, Report};

const STYLE: &str = include_str!("report.css");

/// Nothing but the page itself.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

impl Report {
    /// As a page of HTML.
    pub fn to_html(&self) -> String {
        let file = self.file.display().to_string();
        let page = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta http-equiv="Content-Security-Policy" content=(POLICY);
                    title { "Crash test of " (file) }
                    style { (PreEscaped(STYLE)) }
                }
                body {
                    a.skip href="#matrix" { "To the table" }
                    header {
                        h1 { "Crash test of " (file) }
                        p { (self.badge()) " " (self.summary()) }
                        p.soft { "deed " (self.version) ". Every case is a process that was killed, and as many fresh ones as it took to finish." }
                    }
                    main {
                        (self.findings_list())
                        (self.matrix())
                        (self.case_list())
                        (self.notes())
                    }
                }
            }
        };
        page.into_string()
    }

    fn badge(&self) -> Markup {
        let (class, text) = match (self.holds, self.interrupted) {
            (true, _) => ("badge good", "every claim holds"),
            (false, true) => ("badge ask", "stopped"),
            (false, false) => ("badge bad", "not every claim holds"),
        };
        html! { span class=(class) { (text) } }
    }

    fn findings_list(&self) -> Markup {
        html! {
            @if !self.findings.is_empty() {
                section aria-labelledby="findings" {
                    h2 #findings { "What was found" }
                    ul.findings { @for finding in &self.findings { (self.finding(finding)) } }
                }
            }
        }
    }

    fn finding(&self, finding: &Finding) -> Markup {
        let fails = finding.kind.is_failure();
        let cases = finding.cases.iter().filter_map(|case| self.cases.iter().find(|it| it.case == *case));
        html! {
            li.fails[fails] {
                p { (label(finding.kind)) strong { code { (finding.tool) } } ": " (prose(&finding.message)) }
                @if fails && !finding.cases.is_empty() {
                    p.soft { "Killed at: "
                        @for (number, case) in cases.enumerate() {
                            @if number > 0 { ", " }
                            a href={ "#" (anchor(case)) } { (case.case) }
                        }
                    }
                }
            }
        }
    }

    fn matrix(&self) -> Markup {
        let columns = self.columns();
        html! {
            section aria-labelledby="matrix" {
                h2 #matrix tabindex="-1" { "Tools and kill points" }
                div.scroll tabindex="0" role="region" aria-labelledby="matrix" {
                    table.matrix {
                        caption { "What the cases of each tool came to at each point. A dash: its calls do not cross that point." }
                        thead { tr {
                            th scope="col" { "tool" }
                            @for column in &columns { th scope="col" { code { (column.as_str()) } } }
                        } }
                        tbody { @for row in self.rows() { tr {
                            th scope="row" { code { (row) } (self.class_of(&row)) }
                            @for column in &columns { (self.matrix_cell(&row, *column)) }
                        } } }
                    }
                }
            }
        }
    }

    fn class_of(&self, row: &str) -> Markup {
        let tool = self.tools.iter().find(|tool| tool.name == row);
        html! { @if let Some(tool) = tool { span {
            "declared " (tool.declared.to_string())
            @if tool.contained { ", contained" }
            @if tool.probes { ", with a probe" }
        } } }
    }

    fn matrix_cell(&self, row: &str, column: Column) -> Markup {
        let Some(cell) = self.cell(row, column) else { return html! { td.soft { "–" } } };
        let worst = self.of_cell(row, column).find(|case| case.verdict == cell.worst);
        html! {
            td class=(colour(cell.worst)) {
                @if let Some(case) = worst {
                    a href={ "#" (anchor(case)) } { (cell.text()) }
                }
            }
        }
    }

    fn case_list(&self) -> Markup {
        let (failing, others): (Vec<_>, Vec<_>) = self.cases.iter().partition(|case| case.fails);
        html! {
            @if !failing.is_empty() {
                section aria-labelledby="failing" {
                    h2 #failing { "Cases that fail" }
                    @for case in failing { (details(case)) }
                }
            }
            @if !others.is_empty() {
                section aria-labelledby="others" {
                    h2 #others { "The other cases" }
                    @for case in others { (details(case)) }
                }
            }
        }
    }

    fn notes(&self) -> Markup {
        html! {
            section aria-labelledby="notes" {
                h2 #notes { "How it was compared" }
                @if !self.controls.is_empty() {
                    h3 { "Controls" }
                    ul { @for control in &self.controls { li {
                        code { (control.name) } ": expected " (control.expected.as_str()) ", found "
                        (control.found.map_or("nothing", Verdict::as_str))
                    } } }
                }
                h3 { "Masks" }
                ul { @for mask in &self.masks { li { (mask.what) ": " (prose(mask.how)) } } }
            }
        }
    }
}

fn anchor(case: &CaseReport) -> String {
    format!("case-{}", case.case.to_string().replace([':', '+'], "-"))
}

fn colour(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Once => "good",
        Verdict::Asked => "ask",
        _ => "bad",
    }
}

fn details(case: &CaseReport) -> Markup {
    let step = case.step.as_deref().unwrap_or("no step");
    html! {
        details data-case=(case.case) {
            summary {
                span class={ "badge " (colour(case.verdict)) } { (case.verdict.as_str()) }
                " " code { (case.case) } " " span.soft { (step) }
            }
            div.inside #(anchor(case)) {
                p.soft {
                    (counted(case.processes, "process", "processes")) ", " (case.kills) " killed, "
                    (counted(case.asked.len(), "question", "questions"))
                }
                @for message in &case.messages { p { (prose(message)) } }
                @for asked in &case.asked {
                    p { "Asked (" (asked.kind) "): " (prose(&asked.question)) " Answered: " code { (asked.answer) } }
                }
                p { "Run it alone:" } pre tabindex="0" { (case.replay) }
                @if let Some(kept) = &case.kept { p { "Kept in " code { (kept.display()) } } }
                @for difference in &case.differences { (side::by_side(difference)) }
                @if case.differences.is_empty() { p { "Nothing differs from the undisturbed run." } }
            }
        }
    }
}

/// What is no failure is said to be none.
fn label(kind: FindingKind) -> &'static str {
    match kind {
        FindingKind::Note => "Note: ",
        FindingKind::Suggestion => "Suggestion: ",
        _ => "",
    }
}

/// A text, with what stands in backticks as code.
fn prose(text: &str) -> Markup {
    html! {
        @for (number, part) in text.split('`').enumerate() {
            @if number % 2 == 1 { code { (part) } } @else { (part) }
        }
    }
}

fn counted(count: usize, one: &str, more: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { more })
}
