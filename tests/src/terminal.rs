//! A process on a pseudo-terminal, read and typed to as by the person in front of it.

use std::{
    fs::File,
    io::{Read, Write},
    os::fd::OwnedFd,
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::Instant,
};

use rustix::{
    fs::{Mode, OFlags, open},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{Winsize, tcsetwinsize},
};
use wait_timeout::ChildExt;

use crate::{Ending, process::PATIENCE};

/// A window in which no line of a test is cut.
const WINDOW: Winsize = Winsize { ws_row: 50, ws_col: 200, ws_xpixel: 0, ws_ypixel: 0 };

/// A process whose three streams are one terminal. Dropped, it is killed.
pub struct Terminal {
    child: Child,
    line: String,
    keyboard: File,
    screen: Receiver<Vec<u8>>,
    /// Everything that was shown, what was typed included.
    shown: String,
    /// How much of it has been waited for.
    read: usize,
}

impl Terminal {
    pub(crate) fn start(command: &mut Command, line: String) -> Self {
        let (here, there) = pair();
        let stream = || Stdio::from(there.try_clone().expect("a handle can be copied"));
        let child = command
            .env("TERM", "xterm")
            .stdin(stream())
            .stdout(stream())
            .stderr(stream())
            .spawn()
            .unwrap_or_else(|error| panic!("failed to start `{line}`: {error}"));
        // The command keeps its own; the terminal ends with the last process that has it.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        drop(there);
        let keyboard = File::from(here);
        let mut display = keyboard.try_clone().expect("a handle can be copied");
        let (show, screen) = channel();
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            // An error is how a terminal without a process ends.
            while let Ok(count @ 1..) = display.read(&mut buffer) {
                if show.send(buffer[..count].to_vec()).is_err() {
                    break;
                }
            }
        });
        Self { child, line, keyboard, screen, shown: String::new(), read: 0 }
    }

    /// Wait until `text` is shown, after whatever was waited for before.
    #[track_caller]
    pub fn expect(&mut self, text: &str) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(at) = self.shown[self.read..].find(text) {
                self.read += at + text.len();
                return;
            }
            assert!(self.show_more(deadline), "`{text}` is not shown: {self}");
        }
    }

    /// Type `line` and the return key.
    #[track_caller]
    pub fn type_line(&mut self, line: &str) {
        self.press(&format!("{line}\n"));
    }

    /// Press keys.
    #[track_caller]
    pub fn press(&mut self, keys: &str) {
        let pressed = self.keyboard.write_all(keys.as_bytes());
        assert!(pressed.is_ok(), "nobody reads `{keys:?}` any more: {self}");
    }

    /// Wait for its end, and give everything that was shown. Panics when it hangs, or does not end with `code`.
    #[track_caller]
    pub fn expect_end(mut self, code: i32) -> String {
        let deadline = Instant::now() + PATIENCE;
        while self.show_more(deadline) {}
        let left = deadline.saturating_duration_since(Instant::now());
        let status = self.child.wait_timeout(left).expect("one's own child can be waited for");
        assert_eq!(status.map(Ending::from), Some(Ending::Exit(code)), "{self}");
        std::mem::take(&mut self.shown)
    }

    /// Take what comes next. False at the end, or when nothing comes in time.
    fn show_more(&mut self, deadline: Instant) -> bool {
        let left = deadline.saturating_duration_since(Instant::now());
        let Ok(bytes) = self.screen.recv_timeout(left) else { return false };
        // What tests look for is ASCII, so it does not matter when another character is torn in two.
        self.shown.push_str(&String::from_utf8_lossy(&bytes));
        true
    }
}

impl std::fmt::Display for Terminal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "`{}` on a terminal\n--- shown\n{}", self.line, self.shown.escape_debug())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Both fail when it has ended, which is as well.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// A terminal: our end, and the one that processes get.
fn pair() -> (OwnedFd, OwnedFd) {
    let make = || -> rustix::io::Result<_> {
        let here = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        grantpt(&here)?;
        unlockpt(&here)?;
        let there = open(
            ptsname(&here, Vec::new())?,
            OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        tcsetwinsize(&there, WINDOW)?;
        Ok((here, there))
    };
    make().expect("the system has pseudo-terminals")
}
