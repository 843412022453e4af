//! Builds the guests that only tests use, which `src/guests.rs` embeds.

#[path = "../plugins/build_guests.rs"]
mod build_guests;

use build_guests::Guest;

fn main() {
    build_guests::build(&[
        Guest { name: "claims", package: "deed-guest-claims", directory: "tests/guests/claims" },
        Guest { name: "bold", package: "deed-guest-bold", directory: "tests/guests/bold" },
        Guest { name: "forbidden", package: "deed-guest-forbidden", directory: "tests/guests/forbidden" },
        Guest { name: "foreign", package: "deed-guest-foreign", directory: "tests/guests/foreign" },
        Guest { name: "greet", package: "deed-guest-greet", directory: "tests/guests/greet" },
        Guest { name: "misbehave", package: "deed-guest-misbehave", directory: "tests/guests/misbehave" },
        Guest { name: "probes", package: "deed-guest-probes", directory: "tests/guests/probes" },
    ]);
}
