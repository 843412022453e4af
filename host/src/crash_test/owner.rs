//! How questions are answered while nobody is there.

use super::passage::Question;
use crate::mission::AnswerRule;

/// What the file says about a question: the first rule that fits.
pub(super) fn by_rule(rules: &[AnswerRule], question: &Question) -> Option<(String, Option<String>)> {
    let fits = |rule: &&AnswerRule| {
        rule.wait.as_ref().is_none_or(|wait| *wait == question.kind)
            && rule.tool.as_ref().is_none_or(|tool| *tool == question.name)
    };
    rules.iter().find(fits).map(|rule| (rule.option.clone(), rule.text.clone()))
}

/// The settled rule: an approval is given, of a question's options the first one is taken, and about an unknown outcome
/// the owner tells the truth. A call that is asked about for the third time is given up, so that every run ends.
pub(super) fn by_default(question: &Question, landed: bool, again: usize) -> String {
    let wanted = match question.kind.as_str() {
        "approval" => "approve",
        "reconcile" if again >= 2 => "abandon",
        "reconcile" if landed => "happened",
        "reconcile" => "did-not-happen",
        _ => "",
    };
    let options = &question.options;
    let option = options.iter().find(|option| *option == wanted).or_else(|| options.first());
    option.cloned().unwrap_or_else(|| wanted.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(kind: &str, options: &[&str]) -> Question {
        Question {
            wait: "01234567-4".into(),
            seq: 4,
            kind: kind.into(),
            name: "shell".into(),
            text: "?".into(),
            options: options.iter().map(|option| (*option).to_owned()).collect(),
        }
    }

    #[test]
    fn the_settled_rule_tells_the_truth_and_comes_to_an_end() {
        let options = ["happened", "did-not-happen", "abandon"];
        let reconcile = question("reconcile", &options);
        assert_eq!(by_default(&reconcile, true, 0), "happened");
        assert_eq!(by_default(&reconcile, false, 1), "did-not-happen");
        assert_eq!(by_default(&reconcile, false, 2), "abandon");
        assert_eq!(by_default(&question("approval", &["deny", "approve"]), false, 0), "approve");
        assert_eq!(by_default(&question("question", &["yes", "no"]), false, 0), "yes");
    }

    #[test]
    fn the_first_rule_that_fits_decides() {
        let rule = |wait: Option<&str>, tool: Option<&str>, option: &str| AnswerRule {
            wait: wait.map(str::to_owned),
            tool: tool.map(str::to_owned),
            option: option.into(),
            text: None,
        };
        let rules = [
            rule(Some("question"), None, "no"),
            rule(None, Some("shell"), "abandon"),
            rule(None, None, "never"),
        ];
        let asked = question("reconcile", &["happened", "abandon"]);
        assert_eq!(by_rule(&rules, &asked), Some(("abandon".into(), None)));
        assert_eq!(by_rule(&rules[..1], &asked), None);
    }
}
