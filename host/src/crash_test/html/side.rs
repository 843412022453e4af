//! A difference, side by side.

use maud::{Markup, html};
use similar::{ChangeTag, TextDiff};

use crate::crash_test::difference::Difference;

/// Equal lines that are shown around a change.
const CONTEXT: usize = 3;

/// A row: a line of each side.
enum Row {
    Both(String),
    Changed(Option<String>, Option<String>),
    Cut(usize),
}

/// As a table of two columns.
pub(super) fn by_side(difference: &Difference) -> Markup {
    let rows = rows(difference);
    html! {
        table.side {
            caption { code { (difference.part) } ": " (difference.verdict.as_str()) }
            thead { tr { th scope="col" { "undisturbed" } th scope="col" { "here" } } }
            tbody {
                tr {
                    (presence(difference.expected.as_deref()))
                    (presence(difference.found.as_deref()))
                }
                @for row in &rows { tr { (cells(row)) } }
            }
        }
    }
}

/// Says that a side is not there at all, which is not the same as empty.
fn presence(side: Option<&str>) -> Markup {
    html! { td.cut { @if side.is_none() { "not there" } } }
}

fn cells(row: &Row) -> Markup {
    match row {
        Row::Both(line) => html! { td { (line) } td { (line) } },
        Row::Changed(before, after) => html! {
            td { @if let Some(line) = before { del { (line) } } }
            td { @if let Some(line) = after { ins { (line) } } }
        },
        Row::Cut(count) => html! { td.cut colspan="2" { (count) " equal lines" } },
    }
}

fn rows(difference: &Difference) -> Vec<Row> {
    let text = |side: &Option<String>| side.clone().unwrap_or_default();
    let (expected, found) = (text(&difference.expected), text(&difference.found));
    let diff = TextDiff::from_lines(&expected, &found);
    let mut rows: Vec<Row> = Vec::new();
    let mut removed: Vec<String> = Vec::new();
    let mut added: Vec<String> = Vec::new();
    for change in diff.iter_all_changes() {
        let line = change.value().trim_end_matches('\n').to_owned();
        match change.tag() {
            ChangeTag::Delete => removed.push(line),
            ChangeTag::Insert => added.push(line),
            ChangeTag::Equal => {
                pair(&mut rows, &mut removed, &mut added);
                rows.push(Row::Both(line));
            }
        }
    }
    pair(&mut rows, &mut removed, &mut added);
    cut(rows)
}

/// Put what was removed beside what was added in its place.
fn pair(rows: &mut Vec<Row>, removed: &mut Vec<String>, added: &mut Vec<String>) {
    let (mut removed, mut added) = (removed.drain(..), added.drain(..));
    loop {
        match (removed.next(), added.next()) {
            (None, None) => return,
            (before, after) => rows.push(Row::Changed(before, after)),
        }
    }
}

/// Without the equal lines that are far from any change.
fn cut(rows: Vec<Row>) -> Vec<Row> {
    let changes: Vec<usize> = (0..rows.len()).filter(|at| matches!(rows[*at], Row::Changed(..))).collect();
    let is_near = |at: usize| changes.iter().any(|change| at.abs_diff(*change) <= CONTEXT);
    let mut shown: Vec<Row> = Vec::new();
    for (at, row) in rows.into_iter().enumerate() {
        match (is_near(at), shown.last_mut()) {
            (true, _) => shown.push(row),
            (false, Some(Row::Cut(count))) => *count += 1,
            (false, _) => shown.push(Row::Cut(1)),
        }
    }
    shown
}
