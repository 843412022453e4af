//! Errors of reading, in words that say what to do next.

use std::io;

use deed_sdk::Error;

/// Why `path` could not be read or listed; `doing` is the verb, as in ``failed to read `a.txt` ``.
pub(crate) fn refused(doing: &str, path: &str, error: io::Error) -> Error {
    let known = match error.kind() {
        io::ErrorKind::NotFound => Some("nothing is there; `list_dir` shows what there is"),
        io::ErrorKind::PermissionDenied => Some("not permitted; it may lead out of the workspace"),
        io::ErrorKind::NotADirectory => Some("not a directory; `read_file` reads a file"),
        _ => None,
    };
    let mut refusal = Error::from(error);
    if let Some(words) = known {
        refusal.message = words.into();
    }
    refusal.context(format!("failed to {doing} `{path}`"))
}

/// Refuses what is no regular file before it is opened. `doing` as in [`refused`].
pub(crate) fn require_file(doing: &str, path: &str) -> Result<(), Error> {
    let metadata = std::fs::metadata(path).map_err(|error| refused(doing, path, error))?;
    if metadata.is_dir() {
        return Err(Error::invalid(format!(
            "failed to {doing} `{path}`: it is a directory; `list_dir` lists it"
        )));
    }
    if !metadata.is_file() {
        return Err(Error::invalid(format!("failed to {doing} `{path}`: it is no regular file")));
    }
    Ok(())
}

/// The text of a file, or what makes it none. `doing` as in [`refused`].
pub(crate) fn require_text(doing: &str, path: &str, bytes: Vec<u8>) -> Result<String, Error> {
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Error::invalid(format!("failed to {doing} `{path}`: it is no UTF-8 text (from byte {at} on)"))
    })
}
