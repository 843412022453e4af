//! A component whose author knows nothing of deed.

use std::cell::Cell;
use std::fs::File;
use std::io::Write as _;

use bindings::exports::local::calculator::ops::{Guest, GuestTotal, Rounding, Sample};
use bindings::local::calculator::rates::rate;

mod bindings {
    #![expect(clippy::pedantic, reason = "generated")]
    wit_bindgen::generate!({ path: "wit", world: "calculator" });
    use super::Calculator;
    export!(Calculator);
}

/// Implements the world.
struct Calculator;

impl bindings::Guest for Calculator {
    fn version() -> String {
        "1.2.0".to_owned()
    }
}

impl Guest for Calculator {
    type Total = Total;

    fn add(x: u32, y: u32) -> Result<u32, String> {
        x.checked_add(y).ok_or_else(|| format!("{x} + {y} is too large"))
    }

    fn mean(samples: Vec<Sample>, rounding: Rounding) -> Option<f64> {
        let weight = |sample: &Sample| f64::from(sample.weight.unwrap_or(1));
        let total: f64 = samples.iter().map(weight).sum();
        let sum: f64 = samples.iter().map(|sample| sample.value * weight(sample)).sum();
        let mean = sum / total;
        (!samples.is_empty()).then(|| match rounding {
            Rounding::Down => mean.trunc(),
            Rounding::Up => mean.signum() * mean.abs().ceil(),
        })
    }

    fn product(factors: Vec<u64>) -> u64 {
        factors.into_iter().product()
    }

    fn note(line: String) {
        let notes = File::options().create(true).append(true).open("notes.txt");
        let written = notes.and_then(|mut notes| writeln!(notes, "{line}"));
        assert!(written.is_ok(), "the note was not written: {written:?}");
    }

    fn convert(amount: f64, currency: String) -> f64 {
        amount * rate(&currency)
    }

    fn give_up(why: String) {
        panic!("{why}");
    }
}

/// A running total, which no JSON can hold.
struct Total(Cell<u32>);

impl GuestTotal for Total {
    fn new() -> Self {
        Self(Cell::new(0))
    }

    fn add(&self, x: u32) {
        self.0.set(self.0.get() + x);
    }
}
