//! One request and the redirects that it leads to.
//!
//! Each step is a request of its own, which the host checks as it did the first. The rules are those of RFC 9110, and
//! stricter where it leaves a choice:
//!
//! - GET and HEAD go on with their method. What set out to change something goes on by 303 only, with GET. To send it again,
//!   as 307 and 308 ask, would be a second change with the call's one key, which a server that honours keys takes for the
//!   first one come again: so there they are the answer, as 301 and 302 are.
//! - What sets out to change something does not lead to another server: what was sent was for the first one.
//! - GET and HEAD may, without the credential and without the headers that the caller chose, which were for the first one
//!   too.

use std::collections::BTreeMap;

use deed_sdk::http::{Error, Method, Request, Response};
use url::Url;

/// Redirects that are followed. Twice what sites in order need, and few enough to end a circle at once.
pub(crate) const MAX_REDIRECTS: usize = 10;

/// What the caller asks for.
#[derive(Clone, Debug)]
pub(crate) struct Ask<'a> {
    pub(crate) method: Method,
    pub(crate) url: &'a str,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) credential: Option<&'a str>,
    pub(crate) body: Vec<u8>,
}

/// The last answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) response: Response,
    /// Where it comes from.
    pub(crate) url: String,
    /// Why it is the last one, when it leads on.
    pub(crate) note: Option<String>,
}

/// Why there is no answer, and from where.
#[derive(Debug)]
pub(crate) struct Unanswered {
    pub(crate) url: String,
    pub(crate) error: Error,
}

/// What to do with a redirect.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    Follow(Method, Url),
    Stop(String),
}

impl Ask<'_> {
    /// Send it, and follow where that is allowed.
    pub(crate) fn send(self) -> Result<Answer, Unanswered> {
        let started_safe = self.method.is_safe();
        let failed = |url: &str, error| Unanswered { url: url.to_owned(), error };
        let mut ask = self.clone();
        let mut url = self.url.to_owned();
        let mut response =
            ask.request(&url).and_then(|request| request.send()).map_err(|error| failed(&url, error))?;
        for followed in 0.. {
            let Some(location) = redirect(&response) else { break };
            let (method, to) = match next(started_safe, ask.method, &url, response.status(), location) {
                Next::Follow(..) if followed == MAX_REDIRECTS => {
                    let note = format!("{MAX_REDIRECTS} redirects were followed before this one");
                    return Ok(Answer { response, url, note: Some(note) });
                }
                Next::Follow(method, to) => (method, to),
                Next::Stop(why) => return Ok(Answer { response, url, note: Some(why) }),
            };
            ask.redirect(method, &url, &to);
            match ask.request(to.as_str()).and_then(|request| request.send()) {
                Ok(answer) => (response, url) = (answer, to.into()),
                // What was asked for is done, and answered: what it says about that is elsewhere is a courtesy.
                Err(error) if !started_safe && method.is_safe() => {
                    let (Error::Invalid(why) | Error::Denied(why) | Error::Failed(why) | Error::InDoubt(why)) =
                        error;
                    return Ok(Answer { response, url, note: Some(format!("`{to}` gave no answer: {why}")) });
                }
                Err(error) => return Err(failed(to.as_str(), error)),
            }
        }
        Ok(Answer { response, url, note: None })
    }

    fn request(&self, url: &str) -> Result<Request, Error> {
        let mut request = Request::new(self.method, url)?.body(self.body.clone());
        for (name, value) in &self.headers {
            request = request.header(name, value.as_str());
        }
        if !self.headers.keys().any(|name| name.eq_ignore_ascii_case("user-agent")) {
            request = request.header("user-agent", concat!("deed/", env!("CARGO_PKG_VERSION")));
        }
        if let Some(name) = self.credential {
            request = request.credential(name);
        }
        Ok(request)
    }

    /// Become the request that goes on from `from` to `to`.
    fn redirect(&mut self, method: Method, from: &str, to: &Url) {
        if method.is_safe() && !self.method.is_safe() {
            self.body.clear();
            let is_of_body = |name: &str| name.to_ascii_lowercase().starts_with("content-");
            self.headers.retain(|name, _| !is_of_body(name));
        }
        self.method = method;
        if !Url::parse(from).is_ok_and(|from| from.origin() == to.origin()) {
            self.credential = None;
            let says_what_is_wanted = |name: &str| {
                ["accept", "accept-language", "user-agent"].iter().any(|kept| name.eq_ignore_ascii_case(kept))
            };
            self.headers.retain(|name, _| says_what_is_wanted(name));
        }
    }
}

/// Where an answer leads, if it leads on.
fn redirect(response: &Response) -> Option<&str> {
    if !matches!(response.status(), 301 | 302 | 303 | 307 | 308) {
        return None;
    }
    response.header("location")
}

fn next(started_safe: bool, method: Method, from: &str, status: u16, location: &str) -> Next {
    let to = Url::parse(from).and_then(|from| Ok((from.origin(), from.join(location)?)));
    let Ok((origin, to)) = to else { return Next::Stop(format!("`{location}` is no address")) };
    if !started_safe && to.origin() != origin {
        return Next::Stop(format!("`{to}` is on another server, and what was sent was for this one"));
    }
    if method.is_safe() {
        return Next::Follow(method, to);
    }
    match status {
        303 => Next::Follow(Method::Get, to),
        307 | 308 => {
            Next::Stop(format!("status {status} asks to send it to `{to}`, which is a call of its own"))
        }
        _ => Next::Stop(format!("status {status} does not say whether to send it again to `{to}`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FROM: &str = "https://a.test/x?y=1";

    fn followed(method: Method, status: u16, location: &str) -> Option<(Method, String)> {
        match next(method.is_safe(), method, FROM, status, location) {
            Next::Follow(method, to) => Some((method, to.into())),
            Next::Stop(_) => None,
        }
    }

    #[test]
    fn what_is_safe_is_followed_anywhere_with_its_method() {
        for status in [301, 302, 303, 307, 308] {
            assert_eq!(followed(Method::Get, status, "/b"), Some((Method::Get, "https://a.test/b".into())));
            assert_eq!(
                followed(Method::Head, status, "//b.test"),
                Some((Method::Head, "https://b.test/".into()))
            );
        }
        assert_eq!(followed(Method::Get, 302, "https://"), None);
    }

    #[test]
    fn what_was_sent_is_followed_on_its_server_as_the_status_says() {
        let to = |method| Some((method, "https://a.test/b".to_owned()));
        assert_eq!(followed(Method::Post, 303, "/b"), to(Method::Get));
        for (status, location) in [
            (301, "/b"),
            (302, "/b"),
            (307, "/b"),
            (308, "/b"),
            (303, "https://b.test/"),
            (307, "https://b.test/"),
            (308, "http://a.test/b"),
            (307, "https://a.test:444/"),
        ] {
            assert_eq!(followed(Method::Post, status, location), None, "{status} {location}");
        }
        // Nor on the way that a 303 opened.
        let after = next(false, Method::Get, FROM, 302, "https://b.test/");
        assert!(matches!(after, Next::Stop(_)), "{after:?}");
    }

    fn ask(method: Method) -> Ask<'static> {
        let headers = [("Accept", "text/plain"), ("content-type", "text/csv"), ("x-api-key", "k")];
        Ask {
            method,
            url: FROM,
            headers: headers.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            credential: Some("hub"),
            body: b"body".to_vec(),
        }
    }

    #[test]
    fn to_another_server_go_neither_credential_nor_the_callers_headers() {
        let mut there = ask(Method::Get);
        there.redirect(Method::Get, FROM, &Url::parse("https://b.test/").unwrap());
        assert_eq!(there.credential, None);
        assert_eq!(there.headers.into_keys().collect::<Vec<_>>(), ["Accept"]);

        let mut here = ask(Method::Get);
        here.redirect(Method::Get, FROM, &Url::parse("https://a.test/b").unwrap());
        assert_eq!((here.credential, here.headers.len()), (Some("hub"), 3));
    }

    #[test]
    fn what_goes_on_with_get_has_no_body() {
        let mut on = ask(Method::Post);
        on.redirect(Method::Get, FROM, &Url::parse("https://a.test/b").unwrap());
        assert_eq!((on.body.len(), on.headers.contains_key("content-type")), (0, false));
        assert_eq!(on.credential, Some("hub"));
    }
}
