//! What can be done to files.

use std::ffi::{CString, c_char, c_int};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::time::{Duration, SystemTime};

use deed_sdk::workspace::{self, Expectation};

use crate::Act;

/// What is written.
const TEXT: &[u8] = b"written\n";

// The standard library makes symbolic links on this target only for those who opt in to unstable features.
unsafe extern "C" {
    fn symlink(target: *const c_char, link: *const c_char) -> c_int;
}

/// Try one of the acts on files.
pub(crate) fn attempt(act: Act, path: &str, other: &str) -> Result<String, String> {
    let nothing = String::new;
    match act {
        Act::Digest => {
            let digest = workspace::digest(path).map_err(|error| format!("{error:?}"))?;
            return Ok(digest.unwrap_or_else(|| "nothing there".into()));
        }
        Act::Replace => {
            let replaced = workspace::replace(path, TEXT, &Expectation::Whatever);
            return replaced.map(|_| nothing()).map_err(|error| format!("{error:?}"));
        }
        _ => {}
    }
    let done = match act {
        Act::Read => fs::read_to_string(path),
        Act::List => list(path),
        Act::Stat => fs::metadata(path).map(|found| format!("{} bytes", found.len())),
        Act::ReadLink => fs::read_link(path).map(|target| target.display().to_string()),
        Act::Create => File::create_new(path).and_then(written),
        Act::Overwrite => File::create(path).and_then(written),
        Act::Append => OpenOptions::new().append(true).open(path).and_then(written),
        Act::Truncate => OpenOptions::new().write(true).truncate(true).open(path).map(|_| nothing()),
        Act::SetLength => {
            OpenOptions::new().write(true).open(path).and_then(|file| file.set_len(1)).map(|()| nothing())
        }
        Act::Rename => fs::rename(path, other).map(|()| nothing()),
        Act::Remove => fs::remove_file(path).map(|()| nothing()),
        Act::MakeDirectory => fs::create_dir(path).map(|()| nothing()),
        Act::RemoveDirectory => fs::remove_dir(path).map(|()| nothing()),
        Act::SymbolicLink => symbolic_link(path, other).map(|()| nothing()),
        Act::HardLink => fs::hard_link(path, other).map(|()| nothing()),
        Act::SetTimes => {
            let then = SystemTime::UNIX_EPOCH + Duration::from_secs(1);
            File::open(path).and_then(|file| file.set_modified(then)).map(|()| nothing())
        }
        _ => unreachable!("not an act on files"),
    };
    done.map_err(|error| error.to_string())
}

fn written(mut file: File) -> io::Result<String> {
    file.write_all(TEXT)?;
    Ok(String::new())
}

fn list(path: &str) -> io::Result<String> {
    let mut names = Vec::new();
    for entry in fs::read_dir(path)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names.join(" "))
}

fn symbolic_link(link: &str, target: &str) -> io::Result<()> {
    let (target, link) = (CString::new(target)?, CString::new(link)?);
    // SAFETY: both are strings that end in a zero byte, and outlive the call.
    match unsafe { symlink(target.as_ptr(), link.as_ptr()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
