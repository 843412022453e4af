//! `read_file`, `list_dir`, `search`, `write_file`, `edit_file`: files of the workspace.
//!
//! Reading goes through plain WASI, writing through `deed:workspace`, which alone is atomic and durable.

mod edit_file;
mod list_dir;
mod read_file;
mod refused;
mod search;
mod walk;
mod write_file;

deed_sdk::export!(
    read_file::ReadFile,
    list_dir::ListDir,
    search::Search,
    write_file::WriteFile,
    edit_file::EditFile,
);

/// `1 byte`, `2 bytes`.
fn count(number: usize, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}
