//! Origins: where an HTTP request goes, as far as a grant is concerned.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use url::{Host, Url};

/// A scheme, a host and a port: `https://api.example.org`, `http://127.0.0.1:8080`. A host that begins with `*.` stands
/// for every name below the rest, and not for the rest itself. The port is the scheme's own unless it is named.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Origin {
    scheme: String,
    /// As it was written, without `*.`; IPv6 in brackets.
    host: String,
    below: bool,
    port: u16,
}

/// Text that is no origin.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is no origin: {reason}; expected one like `https://api.example.org` or `http://127.0.0.1:8080`"
)]
pub struct ParseOriginError {
    text: String,
    reason: String,
}

impl Origin {
    /// The origin that a request to `url` goes to; none when it has no host, or a scheme other than `http` and `https`.
    pub fn of(url: &str) -> Option<Self> {
        let url = Url::parse(url).ok()?;
        Self::of_url(&url)
    }

    fn of_url(url: &Url) -> Option<Self> {
        if !matches!(url.scheme(), "http" | "https") {
            return None;
        }
        Some(Self {
            scheme: url.scheme().to_owned(),
            host: url.host()?.to_string(),
            below: false,
            port: url.port_or_known_default()?,
        })
    }

    /// The host; an IPv6 address in brackets.
    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    /// The port, named or not.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Host and port, the latter unless it is the scheme's own.
    pub(crate) fn authority(&self) -> String {
        let default = if self.is_https() { 443 } else { 80 };
        if self.port == default { self.host.clone() } else { format!("{}:{}", self.host, self.port) }
    }

    /// Whether the connection is encrypted.
    pub(crate) fn is_https(&self) -> bool {
        self.scheme == "https"
    }

    /// Whether a request to `requested` is one to this origin.
    pub fn covers(&self, requested: &Self) -> bool {
        let host = if self.below {
            let name = requested.host.strip_suffix(&self.host).and_then(|name| name.strip_suffix('.'));
            name.is_some_and(|name| !name.is_empty())
        } else {
            self.host == requested.host && !requested.below
        };
        host && (&self.scheme, self.port) == (&requested.scheme, requested.port)
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let below = if self.below { "*." } else { "" };
        write!(f, "{}://{below}{}", self.scheme, self.authority())
    }
}

impl From<Origin> for String {
    fn from(origin: Origin) -> Self {
        origin.to_string()
    }
}

impl FromStr for Origin {
    type Err = ParseOriginError;

    fn from_str(text: &str) -> Result<Self, ParseOriginError> {
        let wrong = |reason: &str| ParseOriginError { text: text.to_owned(), reason: reason.to_owned() };
        let (named, below) = match text.split_once("://*.") {
            Some((scheme, rest)) => (format!("{scheme}://{rest}"), true),
            None => (text.to_owned(), false),
        };
        let url = Url::parse(&named).map_err(|error| wrong(&error.to_string()))?;
        let origin = Self::of_url(&url).ok_or_else(|| wrong("its scheme is neither `http` nor `https`"))?;
        if !matches!(url.path(), "" | "/") || url.query().is_some() || url.fragment().is_some() {
            return Err(wrong("it names more than scheme, host and port"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(wrong("it holds a user or a password; name a credential instead"));
        }
        if below && !matches!(url.host(), Some(Host::Domain(_))) {
            return Err(wrong("only a name has names below it"));
        }
        Ok(Self { below, ..origin })
    }
}

impl TryFrom<String> for Origin {
    type Error = ParseOriginError;

    fn try_from(text: String) -> Result<Self, ParseOriginError> {
        text.parse()
    }
}

impl JsonSchema for Origin {
    fn schema_name() -> Cow<'static, str> {
        "Origin".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "Scheme, host and port, such as `https://api.example.org`; `*.` in front of a host stands for every name below it.",
            "pattern": "^https?://[^/?#@]+/?$",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(text: &str) -> Origin {
        text.parse().unwrap()
    }

    fn covers(granted: &str, url: &str) -> bool {
        origin(granted).covers(&Origin::of(url).unwrap())
    }

    #[test]
    fn scheme_host_and_port_all_count() {
        assert!(covers("https://api.example.org", "https://api.example.org/v1?x=1"));
        assert!(covers("https://api.example.org:443", "https://API.example.org/"));
        assert!(!covers("https://api.example.org", "http://api.example.org/"));
        assert!(!covers("https://api.example.org", "https://api.example.org:8443/"));
        assert!(!covers("https://api.example.org", "https://api.example.org.evil.test/"));
        assert!(!covers("https://api.example.org", "https://api.example.org@evil.test/"));
        assert!(covers("http://127.0.0.1:8080", "http://127.0.0.1:8080/a"));
        assert!(covers("http://[::1]:8080", "http://[::1]:8080/a"));
    }

    #[test]
    fn a_star_stands_for_names_below() {
        assert!(covers("https://*.example.org", "https://api.example.org/"));
        assert!(covers("https://*.example.org", "https://a.b.example.org/"));
        assert!(!covers("https://*.example.org", "https://example.org/"));
        assert!(!covers("https://*.example.org", "https://badexample.org/"));
    }

    #[test]
    fn it_is_written_as_it_is_read() {
        for text in ["https://api.example.org", "http://127.0.0.1:8080", "https://*.example.org:8443"] {
            assert_eq!(origin(text).to_string(), text);
        }
        assert_eq!(origin("https://example.org:443/").to_string(), "https://example.org");
    }

    #[test]
    fn what_is_no_origin_is_refused_with_what_was_expected() {
        for text in [
            "example.org",
            "ftp://example.org",
            "https://example.org/path",
            "https://u:p@example.org",
            "http://*.1.2.3.4",
        ] {
            let error = text.parse::<Origin>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("`{text}` is no origin: ")), "{error}");
            assert!(error.contains("expected one like"), "{error}");
        }
        assert_eq!(Origin::of("file:///etc/passwd"), None);
    }
}
