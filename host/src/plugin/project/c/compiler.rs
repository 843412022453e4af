//! Which C compiler makes WebAssembly here.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use super::super::build::BuildError;

/// How to get one.
pub(super) const INSTALL: &str = "`pip install ziglang` installs a C compiler for WebAssembly; a `zig` or a `clang` with wasi-libc \
    does as well, and so does a wasi-sdk that `WASI_SDK_PATH` names";

/// A compiler that may be installed.
struct Candidate {
    program: &'static str,
    /// What comes before any further argument.
    first: &'static [&'static str],
    /// The arguments that tell whether it is there.
    ask: &'static [&'static str],
    /// Whether the answer says so.
    answers: fn(&str) -> bool,
    /// The arguments that make it a compiler for WASI.
    compile: &'static [&'static str],
}

/// Whoever needs more stack than there is meets the end of memory, and traps, instead of writing over the data. Zig's linker always
/// has it so, and knows no flag for it.
const STACK_FIRST: &str = "-Wl,--stack-first";

/// In the order they are looked for. Zig comes first: it brings its own wasi-libc, and so is complete wherever it is there.
const CANDIDATES: [Candidate; 3] = [
    Candidate {
        program: "zig",
        first: &[],
        ask: &["version"],
        answers: is_version,
        compile: &["cc", "-target", "wasm32-wasi"],
    },
    Candidate {
        program: "python3",
        first: &["-m", "ziglang"],
        ask: &["version"],
        answers: is_version,
        compile: &["cc", "-target", "wasm32-wasi"],
    },
    Candidate {
        program: "clang",
        first: &[],
        // How a module without `main` begins. Where wasi-libc is not installed, the answer is the bare name.
        ask: &["--target=wasm32-wasi", "-print-file-name=crt1-reactor.o"],
        answers: is_path,
        compile: &["--target=wasm32-wasi", STACK_FIRST],
    },
];

fn is_version(answer: &str) -> bool {
    answer.starts_with(|c: char| c.is_ascii_digit())
}

fn is_path(answer: &str) -> bool {
    Path::new(answer).is_absolute()
}

/// A compiler for WASI, by how it is started.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Compiler {
    program: OsString,
    arguments: Vec<&'static str>,
}

impl Compiler {
    /// The one in `wasi_sdk`, if that is given; else the first that is installed.
    pub(super) fn find(wasi_sdk: Option<&Path>) -> Result<Self, BuildError> {
        if let Some(directory) = wasi_sdk {
            return Self::of_sdk(directory);
        }
        let found = CANDIDATES.iter().find(|candidate| candidate.is_there());
        found.map(Candidate::compiler).ok_or(BuildError::Missing { tool: "zig".to_owned(), install: INSTALL })
    }

    /// The one in a wasi-sdk. Somebody named it, so another one is not taken in its place.
    fn of_sdk(directory: &Path) -> Result<Self, BuildError> {
        let clang = directory.join("bin/clang");
        // The compiler starts in the project's directory, where a relative path would lead elsewhere.
        match fs::canonicalize(&clang) {
            Ok(program) => Ok(Self {
                program: program.into_os_string(),
                arguments: vec!["--target=wasm32-wasip1", STACK_FIRST],
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(BuildError::Missing {
                tool: clang.to_string_lossy().into_owned(),
                install: "`WASI_SDK_PATH` is to name a wasi-sdk, which has `bin/clang`; without it, the compilers that are \
                    installed are looked for",
            }),
            Err(source) => Err(BuildError::Read { path: clang, source }),
        }
    }

    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments);
        command
    }
}

impl Candidate {
    fn is_there(&self) -> bool {
        let asked = Command::new(self.program)
            .args(self.first)
            .args(self.ask)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .output();
        asked.is_ok_and(|output| {
            output.status.success() && (self.answers)(String::from_utf8_lossy(&output.stdout).trim())
        })
    }

    fn compiler(&self) -> Compiler {
        Compiler { program: self.program.into(), arguments: [self.first, self.compile].concat() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_sdk_that_is_named_is_taken_or_missed() {
        let sdk = tempfile::tempdir().unwrap();
        let error = Compiler::find(Some(sdk.path())).unwrap_err().to_string();
        let expected =
            format!("`{}` is not installed: `WASI_SDK_PATH`", sdk.path().join("bin/clang").display());
        assert!(error.starts_with(&expected), "{error}");

        fs::create_dir(sdk.path().join("bin")).unwrap();
        fs::write(sdk.path().join("bin/clang"), "").unwrap();
        let command = Compiler::find(Some(sdk.path())).unwrap().command();
        assert_eq!(Path::new(command.get_program()), fs::canonicalize(sdk.path()).unwrap().join("bin/clang"));
        assert!(command.get_args().any(|argument| argument == "--target=wasm32-wasip1"));
    }

    #[test]
    fn a_compiler_is_there_if_it_answers_as_it_should() {
        let answering = |answer, answers| Candidate {
            program: "echo",
            first: &["-n"],
            ask: answer,
            answers,
            compile: &["--target=wasm32-wasi"],
        };
        assert!(answering(&["0.15.1"], is_version).is_there());
        assert!(answering(&["/usr/lib/wasm32-wasi/crt1-reactor.o"], is_path).is_there());
        // A `clang` without wasi-libc.
        assert!(!answering(&["crt1-reactor.o"], is_path).is_there());
        let missing = Candidate { program: "no-such-compiler", ..answering(&["0.15.1"], is_version) };
        assert!(!missing.is_there());
        let command = answering(&[], is_version).compiler().command();
        assert_eq!(command.get_args().collect::<Vec<_>>(), ["-n", "--target=wasm32-wasi"]);
    }
}
