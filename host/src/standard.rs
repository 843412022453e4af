//! The standard plugins. The build script builds them from `plugins/`, so that one file is a whole installation.

/// Every standard plugin: its name, as missions and `deed.toml` use it, and its component.
///
/// | plugin | tools |
/// |---|---|
/// | `fs` | `read_file`, `list_dir`, `search` (pure); `write_file`, `edit_file` (idempotent) |
/// | `shell` | `shell` (non-idempotent) |
/// | `git` | `git_status`, `git_diff`, `git_log` (pure); `git_commit` (idempotent); `git_push` (non-idempotent) |
/// | `http` | `http_get` (idempotent); `http_send` (non-idempotent) |
pub const fn standard_plugins() -> [(&'static str, &'static [u8]); 4] {
    [
        ("fs", include_bytes!(concat!(env!("OUT_DIR"), "/fs.wasm"))),
        ("shell", include_bytes!(concat!(env!("OUT_DIR"), "/shell.wasm"))),
        ("git", include_bytes!(concat!(env!("OUT_DIR"), "/git.wasm"))),
        ("http", include_bytes!(concat!(env!("OUT_DIR"), "/http.wasm"))),
    ]
}
