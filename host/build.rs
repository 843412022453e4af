//! Builds the standard plugins, which `src/standard.rs` embeds.

#[path = "../plugins/build_guests.rs"]
mod build_guests;

use build_guests::Guest;

fn main() {
    build_guests::build(&[
        Guest { name: "fs", package: "deed-plugin-fs", directory: "plugins/fs" },
        Guest { name: "shell", package: "deed-plugin-shell", directory: "plugins/shell" },
        Guest { name: "git", package: "deed-plugin-git", directory: "plugins/git" },
        Guest { name: "controls", package: "deed-plugin-controls", directory: "plugins/controls" },
        Guest { name: "http", package: "deed-plugin-http", directory: "plugins/http" },
    ]);
}
