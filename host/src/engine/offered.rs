//! What the host offers to components.

/// What the host offers to a component, by interface; a version of the same `0.minor` or `major` fits.
const OFFERED: &[(&str, &[&str], (u64, u64))] = &[
    ("deed:tool", &["run", "types"], (0, 1)),
    ("deed:workspace", &["files"], (0, 1)),
    ("deed:process", &["exec"], (0, 1)),
    ("deed:git", &["remote", "repository"], (0, 1)),
    (
        "wasi:cli",
        &[
            "environment",
            "exit",
            "stdin",
            "stdout",
            "stderr",
            "terminal-input",
            "terminal-output",
            "terminal-stdin",
            "terminal-stdout",
            "terminal-stderr",
        ],
        (0, 2),
    ),
    ("wasi:clocks", &["monotonic-clock", "wall-clock"], (0, 2)),
    ("wasi:filesystem", &["types", "preopens"], (0, 2)),
    ("wasi:http", &["outgoing-handler", "types"], (0, 2)),
    ("wasi:io", &["error", "poll", "streams"], (0, 2)),
    ("wasi:random", &["random", "insecure", "insecure-seed"], (0, 2)),
    (
        "wasi:sockets",
        &[
            "instance-network",
            "ip-name-lookup",
            "network",
            "tcp",
            "tcp-create-socket",
            "udp",
            "udp-create-socket",
        ],
        (0, 2),
    ),
];

/// Those of `imports` that no capability offers, in their order.
pub(super) fn missing(imports: &[String]) -> Vec<String> {
    imports.iter().filter(|import| !is_offered(import)).cloned().collect()
}

fn is_offered(import: &str) -> bool {
    let Some((interface, version)) = import.split_once('@') else {
        return false;
    };
    let Some((package, interface)) = interface.split_once('/') else {
        return false;
    };
    let mut numbers = version.split(['.', '-', '+']).map(str::parse::<u64>);
    let (Some(Ok(major)), Some(Ok(minor))) = (numbers.next(), numbers.next()) else {
        return false;
    };
    OFFERED.iter().any(|(offered, interfaces, version)| {
        *offered == package && interfaces.contains(&interface) && *version == (major, minor)
    })
}
