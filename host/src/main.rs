//! deed.
fn main() {}
