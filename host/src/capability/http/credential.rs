//! Credentials: what the host adds to a request that names one. No tool ever sees the secret.

use std::fmt;

use http::{HeaderName, HeaderValue};

use crate::origin::Origin;

/// The header by which a tool names a credential. It never leaves the host.
pub(super) const CREDENTIAL_HEADER: &str = "deed-credential";

/// A credential, by name. Its secret is shown nowhere: not by `Debug`, not in an error.
#[derive(Clone)]
pub struct Credential {
    pub(super) name: String,
    pub(super) origins: Vec<Origin>,
    pub(super) header: HeaderName,
    /// Why there is none, when it could not be had.
    pub(super) secret: Result<Secret, String>,
}

/// A secret, and the value of the header that carries it.
#[derive(Clone)]
pub(super) struct Secret {
    pub(super) bytes: Box<[u8]>,
    pub(super) value: HeaderValue,
}

/// What makes a credential unusable in every request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the credential `{name}` cannot be used: {reason}")]
pub struct CredentialError {
    name: String,
    reason: String,
}

impl Credential {
    /// One that goes to `origins`, in `header`, as `prefix` and the secret. A secret that could not be had, with the
    /// reason, is an error only of the request that names the credential.
    pub fn new(
        name: impl Into<String>,
        origins: Vec<Origin>,
        header: &str,
        prefix: &str,
        secret: Result<String, String>,
    ) -> Result<Self, CredentialError> {
        let name = name.into();
        let wrong = |reason: String| CredentialError { name: name.clone(), reason };
        if origins.is_empty() {
            return Err(wrong("`origins` names no server; expected at least one".to_owned()));
        }
        let parsed = HeaderName::try_from(header)
            .map_err(|_| wrong(format!("`header` is `{header}`, which is no header's name")))?;
        if wasmtime_wasi_http::DEFAULT_FORBIDDEN_HEADERS.contains(&parsed)
            || parsed == http::header::CONTENT_LENGTH
        {
            return Err(wrong(format!("`header` is `{header}`, which the host sets itself")));
        }
        let secret = secret.and_then(|secret| {
            if secret.is_empty() {
                return Err("it is empty".to_owned());
            }
            let mut value = HeaderValue::try_from(format!("{prefix}{secret}"))
                .map_err(|_| "it holds a character that no header may hold".to_owned())?;
            value.set_sensitive(true);
            Ok(Secret { bytes: secret.into_bytes().into(), value })
        });
        Ok(Self { header: parsed, name, origins, secret })
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Why its secret is not there, if so.
    pub fn missing(&self) -> Option<&str> {
        self.secret.as_ref().err().map(String::as_str)
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credential")
            .field("name", &self.name)
            .field("origins", &self.origins)
            .field("header", &self.header)
            .field("missing", &self.missing())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credential(header: &str, prefix: &str, secret: &str) -> Result<Credential, CredentialError> {
        let origins = vec!["https://a.test".parse().unwrap()];
        Credential::new("hub", origins, header, prefix, Ok(secret.to_owned()))
    }

    #[test]
    fn the_secret_is_in_the_header_and_nowhere_else() {
        let made = credential("authorization", "Bearer ", "hunter2").unwrap();
        assert_eq!(
            made.secret.as_ref().map(|secret| secret.value.as_bytes()).ok(),
            Some(&b"Bearer hunter2"[..])
        );
        assert!(!format!("{made:?}").contains("hunter2"), "{made:?}");
    }

    #[test]
    fn what_no_header_can_carry_is_said_without_the_secret() {
        for secret in ["", "hunter\n2"] {
            let made = credential("authorization", "", secret).unwrap();
            let missing = made.missing().unwrap();
            assert!(!missing.contains("hunter"), "{missing}");
        }
        for header in ["host", "a b", "content-length"] {
            let error = credential(header, "", "hunter2").unwrap_err().to_string();
            assert!(
                error.contains("`hub`") && error.contains(header) && !error.contains("hunter2"),
                "{error}"
            );
        }
        let error = Credential::new("hub", Vec::new(), "authorization", "", Ok("x".to_owned())).unwrap_err();
        assert!(error.to_string().contains("`origins`"), "{error}");
    }
}
