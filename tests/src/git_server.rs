//! A git server on a free port of this machine: HTTP/1.1, answered by `git http-backend`.
//!
//! It serves the repositories below one directory. It can be told to fail, as servers and networks do.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
};

/// What becomes of a push's second request, the one that carries the update. What comes before is always answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is served.
    None,
    /// The connection is closed before anything was done.
    LostBefore,
    /// It is done, and the connection is closed before the answer.
    LostAfter,
    /// Nobody is let in, from the first request on.
    Unauthorized,
    /// It sends elsewhere, from the first request on.
    Redirect,
}

/// The server; it stops when it is dropped.
pub struct GitServer {
    url: String,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    root: PathBuf,
    fault: Mutex<Fault>,
    /// `METHOD PATH`, in order.
    requests: Mutex<Vec<String>>,
    stopped: AtomicBool,
}

impl GitServer {
    /// Serve the repositories below `root`. Anybody may push to them.
    pub fn start(root: &Path) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("the machine has a free port");
        let address = listener.local_addr().expect("it is bound");
        let shared = Arc::new(Shared {
            root: root.to_owned(),
            fault: Mutex::new(Fault::None),
            requests: Mutex::default(),
            stopped: AtomicBool::new(false),
        });
        let serving = Arc::clone(&shared);
        let thread = std::thread::spawn(move || {
            // One connection after the other: git opens no more, and what it asks for is short.
            for connection in listener.incoming() {
                if serving.stopped.load(Ordering::SeqCst) {
                    break;
                }
                // A client that went away is no matter of the server's.
                let _ = connection.and_then(|connection| serving.serve(&connection));
            }
        });
        Self { url: format!("http://{address}"), shared, thread: Some(thread) }
    }

    /// The URL of the repository `name`.
    pub fn url(&self, name: &str) -> String {
        format!("{}/{name}", self.url)
    }

    /// Fail so from now on.
    pub fn fail(&self, fault: Fault) {
        *self.shared.fault.lock().expect("nobody panics with it") = fault;
    }

    /// Every request so far: `METHOD PATH`.
    pub fn requests(&self) -> Vec<String> {
        self.shared.requests.lock().expect("nobody panics with it").clone()
    }
}

impl Drop for GitServer {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::SeqCst);
        // Wakes it up.
        let _ = TcpStream::connect(self.url.trim_start_matches("http://"));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A request, its body read and decoded.
struct Request {
    method: String,
    path: String,
    query: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Request {
    fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(header, _)| header.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    /// None when the client has nothing more to ask.
    fn read(from: &mut impl BufRead) -> io::Result<Option<Self>> {
        let first = line(from)?;
        let mut words = first.split(' ');
        let (Some(method), Some(target)) = (words.next(), words.next()) else { return Ok(None) };
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let mut request = Self {
            method: method.to_owned(),
            path: path.to_owned(),
            query: query.to_owned(),
            headers: Vec::new(),
            body: Vec::new(),
        };
        loop {
            let header = line(from)?;
            let Some((name, value)) = header.split_once(':') else { break };
            request.headers.push((name.to_owned(), value.trim().to_owned()));
        }
        if request.header("transfer-encoding").is_some() {
            loop {
                let size = usize::from_str_radix(&line(from)?, 16).map_err(io::Error::other)?;
                let start = request.body.len();
                request.body.resize(start + size, 0);
                from.read_exact(&mut request.body[start..])?;
                line(from)?;
                if size == 0 {
                    break;
                }
            }
        } else if let Some(length) = request.header("content-length") {
            request.body = vec![0; length.parse().map_err(io::Error::other)?];
            from.read_exact(&mut request.body)?;
        }
        Ok(Some(request))
    }
}

fn line(from: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    from.read_line(&mut line)?;
    Ok(line.trim_end().to_owned())
}

impl Shared {
    fn serve(&self, connection: &TcpStream) -> io::Result<()> {
        let mut input = BufReader::new(connection.try_clone()?);
        while let Some(request) = Request::read(&mut input)? {
            self.requests
                .lock()
                .expect("nobody panics with it")
                .push(format!("{} {}", request.method, request.path));
            let fault = *self.fault.lock().expect("nobody panics with it");
            let carries_update = request.path.ends_with("/git-receive-pack") && request.body.len() > 4;
            let answer = match fault {
                Fault::Unauthorized => {
                    refusal("401 Unauthorized", "WWW-Authenticate: Basic realm=\"git\"\r\n")
                }
                Fault::Redirect => {
                    refusal("301 Moved", "Location: http://127.0.0.1:9/elsewhere/info/refs\r\n")
                }
                Fault::LostBefore if carries_update => return connection.shutdown(Shutdown::Both),
                _ => self.answer(&request)?,
            };
            if fault == Fault::LostAfter && carries_update {
                return connection.shutdown(Shutdown::Both);
            }
            (&mut &*connection).write_all(&answer)?;
        }
        Ok(())
    }

    /// What the program answers, as CGI has it.
    fn answer(&self, request: &Request) -> io::Result<Vec<u8>> {
        let mut backend = Command::new("git");
        backend
            // Anybody may push, and the repository need not say so itself.
            .args(["-c", "http.receivepack=true", "http-backend"])
            .env("GIT_PROJECT_ROOT", &self.root)
            .env("GIT_HTTP_EXPORT_ALL", "1")
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("PATH_INFO", &request.path)
            .env("QUERY_STRING", &request.query)
            .env("REQUEST_METHOD", &request.method)
            .env("CONTENT_LENGTH", request.body.len().to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        for (header, variable) in [
            ("content-type", "CONTENT_TYPE"),
            ("content-encoding", "HTTP_CONTENT_ENCODING"),
            ("git-protocol", "GIT_PROTOCOL"),
        ] {
            if let Some(value) = request.header(header) {
                backend.env(variable, value);
            }
        }
        let mut backend = backend.spawn()?;
        let mut input = backend.stdin.take().expect("it is a pipe");
        let mut output = backend.stdout.take().expect("it is a pipe");
        let body = request.body.clone();
        let feeding = std::thread::spawn(move || input.write_all(&body));
        let mut answer = Vec::new();
        output.read_to_end(&mut answer)?;
        // It may have ended without reading.
        let _ = feeding.join();
        backend.wait()?;
        let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n");
        let (headers, body) = answer.split_at(end.ok_or_else(|| io::Error::other("no headers"))? + 4);
        let headers = String::from_utf8_lossy(headers);
        let status = headers.lines().find_map(|line| line.strip_prefix("Status: ")).unwrap_or("200 OK");
        let mut whole =
            format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n{headers}", body.len()).into_bytes();
        whole.extend_from_slice(body);
        Ok(whole)
    }
}

fn refusal(status: &str, header: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\n{header}Content-Length: 0\r\n\r\n").into_bytes()
}
