//! Grants: what the operator lets a tool reach, and how much it may use up.
//!
//! Without any grant a tool has the workspace, and an effectful one may run commands there that have no network.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::engine::{Limit, OutOfRange, Settings};
use crate::mission::Network;
use crate::origin::Origin;

/// What one tool, or every tool, is granted. A field that is left out says nothing: then the next grant that matches the
/// tool decides, and at last the default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Grant {
    /// The tool's name, or `*` for every tool.
    pub tool: String,
    /// What it may do with the workspace's files. Default: `write`, which for a pure call means `read`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<Files>,
    /// The servers it reaches by HTTP. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hosts: Option<Vec<HostGrant>>,
    /// The programs that an effectful call may start, by the name it uses. Default: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commands: Option<Vec<String>>,
    /// The git remotes it may list and push to: URLs or absolute paths. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remotes: Option<Vec<String>>,
    /// Whether the commands it starts reach the network. Default: what the mission says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
    /// Bytes of memory one call may use. Default: 256 MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = Limit::Memory.least(), max = Limit::Memory.most()))]
    pub memory_bytes: Option<u64>,
    /// Bytes of data that each process of its commands may hold (`RLIMIT_DATA`). Default: what the machine lets it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = Limit::CommandMemory.least(), max = Limit::CommandMemory.most()))]
    pub command_memory_bytes: Option<u64>,
    /// Milliseconds one call may take, host calls and commands included. Default: what the tool says, else two minutes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = Limit::Time.least(), max = Limit::Time.most()))]
    pub timeout_ms: Option<u64>,
    /// Milliseconds a call may go on after a cancel, to stop by itself. Default: 2,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = Limit::CancelGrace.least(), max = Limit::CancelGrace.most()))]
    pub cancel_grace_ms: Option<u64>,
    /// Elements of all tables of one call. Default: 100,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = Limit::Table.least(), max = Limit::Table.most()))]
    pub table_elements: Option<u64>,
    /// Bytes of a call's arguments, as JSON text. Default: 8 MiB, which is the most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = Limit::Input.least(), max = Limit::Input.most()))]
    pub input_bytes: Option<u64>,
    /// Bytes of a result. Default: 4 MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = Limit::Output.least(), max = Limit::Output.most()))]
    pub output_bytes: Option<u64>,
    /// Bytes one call may write to its standard output and error. Default: 16 MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = Limit::Stdio.least(), max = Limit::Stdio.most()))]
    pub stdio_bytes: Option<u64>,
    /// Log and progress lines of one call that are passed on. Default: 10,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = Limit::LogLines.least(), max = Limit::LogLines.most()))]
    pub log_lines: Option<u64>,
    /// Files, directories, streams and timers that one call has open at once. Default: 256.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = Limit::Handles.least(), max = Limit::Handles.most()))]
    pub handles: Option<u64>,
    /// Bytes that a tool passes to one call of the host, and those of its result. Default: 64 MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = Limit::HostCall.least(), max = Limit::HostCall.most()))]
    pub host_call_bytes: Option<u64>,
}

impl Grant {
    /// What it says of limits.
    fn limits(&self) -> Settings {
        Settings::of(|limit| match limit {
            Limit::Memory => self.memory_bytes,
            Limit::CommandMemory => self.command_memory_bytes,
            Limit::Time => self.timeout_ms,
            Limit::CancelGrace => self.cancel_grace_ms,
            Limit::Table => self.table_elements,
            Limit::Input => self.input_bytes,
            Limit::Output => self.output_bytes,
            Limit::Stdio => self.stdio_bytes,
            Limit::LogLines => self.log_lines,
            Limit::Handles => self.handles,
            Limit::HostCall => self.host_call_bytes,
        })
    }

    /// Whether every limit in `grants` is one that can be kept.
    pub(crate) fn check_all(grants: &[Self]) -> Result<(), UnusableGrant> {
        grants.iter().try_for_each(|grant| {
            grant.limits().check().map_err(|source| UnusableGrant { tool: grant.tool.clone(), source })
        })
    }
}

/// A grant that sets a limit to what it cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the grant of `{tool}`: {source}")]
pub struct UnusableGrant {
    tool: String,
    source: OutOfRange,
}

/// What a tool may do with the workspace's files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Files {
    /// It sees none.
    None,
    /// It reads them.
    Read,
    /// It reads them, and writes them when it is called as effectful.
    #[default]
    Write,
}

/// A server that a tool reaches by HTTP: its origin, alone or with what is known of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum HostGrant {
    /// A server of which nothing else is known.
    Origin(Origin),
    /// A server of which more is known.
    Known(KnownHost),
}

/// A server of which more is known than where it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KnownHost {
    /// Where it is.
    pub origin: Origin,
    /// It does what a request asks for once, however often one with the same `Idempotency-Key` comes. Then a call that
    /// only reaches such servers may be idempotent. Default: it does not.
    #[serde(default)]
    pub honours_key: bool,
}

impl HostGrant {
    /// Where the server is.
    pub fn origin(&self) -> &Origin {
        match self {
            Self::Origin(origin) | Self::Known(KnownHost { origin, .. }) => origin,
        }
    }

    /// Whether it repeats nothing that has the same key.
    pub fn honours_key(&self) -> bool {
        matches!(self, Self::Known(KnownHost { honours_key: true, .. }))
    }
}

/// What one tool is granted, all told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Granted {
    /// The workspace's files.
    pub files: Files,
    /// The servers it reaches by HTTP.
    pub hosts: Vec<HostGrant>,
    /// The programs it may start; all when none.
    pub commands: Option<Vec<String>>,
    /// The git remotes it may list and push to.
    pub remotes: Vec<String>,
    /// Whether its commands reach the network.
    pub network: Network,
    /// How much it may use up, where somebody set it.
    pub limits: Settings,
}

/// What a tool has without any grant: the workspace, and commands without network.
impl Default for Granted {
    fn default() -> Self {
        Self { files: Files::Write, commands: None, ..Self::nothing() }
    }
}

impl Granted {
    /// Nothing at all.
    pub const fn nothing() -> Self {
        Self {
            files: Files::None,
            hosts: Vec::new(),
            commands: Some(Vec::new()),
            remotes: Vec::new(),
            network: Network::Closed,
            limits: Settings::none(),
        }
    }

    /// What `grants`, in order, say of `tool`: of each field, the first that matches and names it decides.
    pub fn of(tool: &str, grants: &[Grant], network: Network) -> Self {
        let mut granted = Grant::default();
        let mut limits = Settings::none();
        for grant in grants.iter().filter(|grant| grant.tool == "*" || grant.tool == tool) {
            limits = limits.or(&grant.limits());
            let Grant { files, hosts, commands, remotes, network, .. } = grant.clone();
            granted.files = granted.files.or(files);
            granted.hosts = granted.hosts.or(hosts);
            granted.commands = granted.commands.or(commands);
            granted.remotes = granted.remotes.or(remotes);
            granted.network = granted.network.or(network);
        }
        Self {
            files: granted.files.unwrap_or_default(),
            hosts: granted.hosts.unwrap_or_default(),
            commands: granted.commands,
            remotes: granted.remotes.unwrap_or_default(),
            network: granted.network.unwrap_or(network),
            limits,
        }
    }

    /// What both grant: a call that was planned under one policy and starts under a stricter one has what is left.
    #[must_use]
    pub fn meet(mut self, other: &Self) -> Self {
        self.files = self.files.min(other.files);
        self.hosts.retain(|host| {
            other.hosts.iter().any(|theirs| {
                let covers = theirs.origin() == host.origin() || theirs.origin().covers(host.origin());
                covers && theirs.honours_key() >= host.honours_key()
            })
        });
        self.commands = match (self.commands, &other.commands) {
            (Some(mine), Some(theirs)) => {
                Some(mine.into_iter().filter(|command| theirs.contains(command)).collect())
            }
            (mine, theirs) => mine.or_else(|| theirs.clone()),
        };
        self.remotes.retain(|remote| other.remotes.contains(remote));
        if other.network == Network::Closed {
            self.network = Network::Closed;
        }
        self.limits = self.limits.meet(&other.limits);
        self
    }

    /// The grant for a request to `origin`, if there is one.
    pub fn host(&self, origin: &Origin) -> Option<&HostGrant> {
        let covers = |host: &&HostGrant| host.origin().covers(origin);
        // One that says more of the server counts before one that says nothing.
        let mut covering = self.hosts.iter().filter(covers);
        let first = covering.next()?;
        Some(std::iter::once(first).chain(covering).find(|host| host.honours_key()).unwrap_or(first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn grants(value: serde_json::Value) -> Vec<Grant> {
        serde_json::from_value(value).unwrap()
    }

    fn of(tool: &str, value: serde_json::Value) -> Granted {
        Granted::of(tool, &grants(value), Network::Closed)
    }

    #[test]
    fn of_each_field_the_first_that_names_it_decides() {
        let value = json!([
            { "tool": "http_get", "hosts": ["https://a.test"] },
            { "tool": "*", "hosts": [], "timeout_ms": 5, "network": "open" },
            { "tool": "http_get", "timeout_ms": 9, "files": "none" },
        ]);
        let granted = of("http_get", value.clone());
        assert_eq!(granted.hosts.len(), 1);
        assert_eq!(
            (granted.limits.get(Limit::Time), granted.files, granted.network),
            (Some(5), Files::None, Network::Open)
        );
        let other = of("shell", value);
        assert_eq!((other.hosts.len(), other.files, other.commands), (0, Files::Write, None));
    }

    #[test]
    fn what_two_policies_grant_is_what_both_grant() {
        let planned = of(
            "t",
            json!([{ "tool": "t", "hosts": ["https://a.test", { "origin": "https://b.test", "honours_key": true }],
                "remotes": ["/r"], "memory_bytes": 7, "network": "open" }]),
        );
        let now = of(
            "t",
            json!([{ "tool": "t", "hosts": ["https://*.test"], "commands": ["make"], "files": "read", "memory_bytes": 9 }]),
        );
        let both = planned.clone().meet(&now);
        assert_eq!(both.hosts.len(), 1, "b's honouring is not known any more: {both:?}");
        assert_eq!(
            (both.commands, both.files, both.remotes.len()),
            (Some(vec!["make".to_owned()]), Files::Read, 0)
        );
        assert_eq!((both.limits.get(Limit::Memory), both.network), (Some(7), Network::Closed));
        assert_eq!(planned.clone().meet(&planned), planned);
    }

    #[test]
    fn a_server_that_honours_the_key_is_known_as_such_whichever_grant_comes_first() {
        let granted = of(
            "t",
            json!([{ "tool": "t", "hosts": ["https://*.test", { "origin": "https://b.test", "honours_key": true }] }]),
        );
        let honours = |url| granted.host(&Origin::of(url).unwrap()).map(HostGrant::honours_key);
        assert_eq!(honours("https://b.test/x"), Some(true));
        assert_eq!(honours("https://a.test/x"), Some(false));
        assert_eq!(honours("https://c.example/x"), None);
    }
}
