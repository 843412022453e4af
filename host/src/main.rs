//! The binary `deed`: a command line over the library.

mod cli;

fn main() -> std::process::ExitCode {
    cli::main()
}
