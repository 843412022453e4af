//! The report as XML of `JUnit`, as continuous integration reads it: a suite a tool, a test a case.

use std::time::Duration;

use quick_junit::{NonSuccessKind, Report as Xml, TestCase, TestCaseStatus, TestSuite};

use super::report::Report;

impl Report {
    /// As XML of `JUnit`.
    ///
    /// # Panics
    /// Never: it is written to memory.
    pub fn to_junit(&self) -> String {
        let mut xml = Xml::new("deed crash-test");
        xml.set_time(Duration::from_millis(self.elapsed_ms));
        let mut controls = TestSuite::new("controls");
        for control in &self.controls {
            let status = if control.holds() {
                TestCaseStatus::success()
            } else {
                let found = control.found.map_or("nothing", super::Verdict::as_str);
                failure(&format!("found `{found}`, expected `{}`", control.expected.as_str()), "")
            };
            controls.add_test_case(TestCase::new(control.name, status));
        }
        if !self.controls.is_empty() {
            xml.add_test_suite(controls);
        }
        for row in self.rows() {
            let mut suite = TestSuite::new(row.clone());
            for case in self.cases.iter().filter(|case| case.row() == row) {
                let status = if case.fails {
                    let details: String = case.differences.iter().map(super::Difference::unified).collect();
                    failure(&format!("{}: {}", case.verdict.as_str(), case.messages.join("; ")), &details)
                } else {
                    TestCaseStatus::success()
                };
                suite.add_test_case(TestCase::new(case.case.to_string(), status));
            }
            // What is said of a tool as a whole, and not of a case.
            for finding in self.failures().filter(|finding| finding.tool == row && finding.cases.is_empty()) {
                suite.add_test_case(TestCase::new("undisturbed", failure(&finding.message, "")));
            }
            xml.add_test_suite(suite);
        }
        xml.to_string().expect("the report is written to memory")
    }
}

fn failure(message: &str, details: &str) -> TestCaseStatus {
    let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
    status.set_message(message);
    if !details.is_empty() {
        status.set_description(details);
    }
    status
}
