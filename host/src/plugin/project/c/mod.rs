//! Building a project in C: bindings from its own `wit/`, a core module by a C compiler, and a component of that.
//!
//! The compiler knows WASI as it was before components (preview 1). The adapter that goes into the component speaks the
//! current one on the module's behalf, and is left out of a module that asks nothing of WASI.

mod compiler;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use walkdir::WalkDir;
use wasi_preview1_component_adapter_provider::{
    WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME, WASI_SNAPSHOT_PREVIEW1_REACTOR_ADAPTER,
};
use wit_bindgen_core::Files;
use wit_bindgen_core::wit_parser::Resolve;
use wit_component::ComponentEncoder;

use self::compiler::Compiler;
use super::build::{BuildError, named_after, run};

/// The directory of what is generated: the bindings, and the module before it is a component.
const GENERATED: &str = "gen";
/// The world in `wit/`, as for the other languages. The bindings are named after it.
const WORLD: &str = "plugin";
/// The object that tells the linker the world, which it puts into the module.
const OBJECT: &str = "plugin_component_type.o";
/// The flags of every compilation, one a line: a file that editors read as well, by way of clangd.
const FLAGS: &str = "compile_flags.txt";
/// The end of a source file's name that is a test, with a `main` of its own.
const TEST: &str = "_test.c";

/// What a component needs of its module. The project's flags come behind, and may say otherwise.
const ALWAYS: [&str; 2] = [
    // There is no `main`: what the host calls is exported.
    "-mexec-model=reactor",
    // As much stack as Rust's guests have: 1 MiB. The linker's own 64 KiB are too little for what recurses, such as a parser.
    "-Wl,-z,stack-size=1048576",
];

/// Build the project in `directory`, by `wasi_sdk` if that is given, else by a compiler that is installed.
pub(super) fn build(directory: &Path, wasi_sdk: Option<&Path>) -> Result<PathBuf, BuildError> {
    let compiler = Compiler::find(wasi_sdk)?;
    bindings(directory)?;
    let module = Path::new(GENERATED).join("plugin.core.wasm");
    let mut command = compiler.command();
    command.args(ALWAYS).args(flags(directory)?).args(sources(directory)?);
    run(command.arg("-o").arg(&module).current_dir(directory), compiler::INSTALL)?;
    let place = named_after(directory);
    let module = directory.join(module);
    let component = component(&module)
        .map_err(|reason| BuildError::Component { module, reason: format!("{reason:#}") })?;
    fs::write(&place, component).map_err(|source| BuildError::Write { path: place.clone(), source })?;
    Ok(place)
}

/// Write what the interface is in C: declarations, and the code between them and the host.
fn bindings(directory: &Path) -> Result<(), BuildError> {
    let interface = directory.join("wit");
    let files =
        generate(&interface).map_err(|reason| BuildError::Interface { directory: interface, reason })?;
    let generated = directory.join(GENERATED);
    for (name, bytes) in files.iter() {
        let path = generated.join(name);
        let written = fs::create_dir_all(&generated).and_then(|()| fs::write(&path, bytes));
        written.map_err(|source| BuildError::Write { path, source })?;
    }
    Ok(())
}

/// The bindings of the interface in a directory; else what is wrong with it, and in which line.
fn generate(interface: &Path) -> Result<Files, String> {
    let mut resolve = Resolve::default();
    let (package, _) = resolve.push_dir(interface).map_err(|error| resolve.render_error(&error))?;
    let mut files = Files::default();
    let generated = resolve
        .select_world(&[package], Some(WORLD))
        .and_then(|world| wit_bindgen_c::Opts::default().build().generate(&mut resolve, world, &mut files));
    generated.map_err(|error| format!("{error:#}"))?;
    Ok(files)
}

/// The project's own flags. Without the file there are none.
fn flags(directory: &Path) -> Result<Vec<String>, BuildError> {
    let path = directory.join(FLAGS);
    match fs::read_to_string(&path) {
        Ok(text) => {
            Ok(text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect())
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(source) => Err(BuildError::Read { path, source }),
    }
}

/// The source files, and the object that tells the world: those in the project and in the directories of it, which are what
/// is generated and what comes from elsewhere. Not deeper: a compiler that is installed in the project brings sources along.
fn sources(directory: &Path) -> Result<Vec<PathBuf>, BuildError> {
    let mut found = Vec::new();
    for entry in WalkDir::new(directory).max_depth(2).sort_by_file_name() {
        let entry = entry.map_err(|error| BuildError::Read {
            path: error.path().unwrap_or(directory).to_owned(),
            source: error.into(),
        })?;
        let name = entry.file_name().to_string_lossy();
        let is_source = name.ends_with(".c") && !name.ends_with(TEST) || name == OBJECT;
        if is_source && let Ok(path) = entry.path().strip_prefix(directory) {
            found.push(path.to_owned());
        }
    }
    Ok(found)
}

/// A component of the module at `path`, which says itself which world it is of.
fn component(path: &Path) -> anyhow::Result<Vec<u8>> {
    let module = fs::read(path)?;
    ComponentEncoder::default()
        .validate(true)
        .module(&module)?
        .adapter(WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME, WASI_SNAPSHOT_PREVIEW1_REACTOR_ADAPTER)?
        .encode()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugin::project::{Language, create};

    fn project() -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        create(directory.path(), "my-plugin", Language::C).unwrap();
        directory
    }

    #[test]
    fn the_bindings_follow_the_projects_own_interface() {
        let project = project();
        let interface = project.path().join("wit/plugin.wit");
        bindings(project.path()).unwrap();
        let header = project.path().join("gen/plugin.h");
        let text = fs::read_to_string(&header).unwrap();
        assert!(
            text.contains("exports_deed_tool_tools_invoke(") && !text.contains("reconcile_probe"),
            "{text}"
        );

        let world = fs::read_to_string(&interface).unwrap();
        fs::write(&interface, world.replace("deed:tool/tool@", "deed:tool/tool-with-probe@")).unwrap();
        bindings(project.path()).unwrap();
        let text = fs::read_to_string(&header).unwrap();
        assert!(text.contains("exports_deed_tool_reconcile_probe("), "{text}");

        for (wrong, told) in
            [("package local:plugin; world other {}", "`plugin`"), ("package local:", "plugin.wit:1")]
        {
            fs::write(&interface, wrong).unwrap();
            let error = bindings(project.path()).unwrap_err().to_string();
            let expected =
                format!("failed to make bindings from `{}`: ", project.path().join("wit").display());
            assert!(error.starts_with(&expected) && error.contains(told), "{error}");
        }
    }

    #[test]
    fn tests_and_what_lies_deeper_are_not_compiled() {
        let project = project();
        bindings(project.path()).unwrap();
        fs::create_dir_all(project.path().join("venv/lib")).unwrap();
        fs::write(project.path().join("venv/lib/other.c"), "").unwrap();
        let found = sources(project.path()).unwrap();
        let expected =
            ["cJSON/cJSON.c", "gen/plugin.c", "gen/plugin_component_type.o", "greeting.c", "plugin.c"];
        assert_eq!(found, expected.map(PathBuf::from));
    }

    #[test]
    fn flags_are_lines_and_may_be_missing() {
        let project = project();
        let path = project.path().join(FLAGS);
        fs::write(&path, "-Os\n\n  -DNAME=a b \n").unwrap();
        assert_eq!(flags(project.path()).unwrap(), ["-Os", "-DNAME=a b"]);
        fs::remove_file(&path).unwrap();
        assert_eq!(flags(project.path()).unwrap(), Vec::<String>::new());
    }

    #[test]
    fn a_module_that_imports_what_no_interface_has_is_no_component() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("plugin.core.wasm");
        fs::write(&path, wat::parse_str(r#"(module (import "env" "not_defined" (func)))"#).unwrap()).unwrap();
        let error = format!("{:#}", component(&path).unwrap_err());
        assert!(error.contains("`env`"), "{error}");
    }
}
