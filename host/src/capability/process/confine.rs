//! What a contained command may not ask the kernel for, whoever it runs as.
//!
//! Everything but its stage is read-only where it runs, and thrown away. What is left are the ways around files: sockets,
//! which reach whoever listens at a path however empty the network is; keys, which the kernel keeps for a user and not for a
//! process; and the capabilities that could undo the mounts.

use std::io;
use std::sync::OnceLock;

use rustix::thread::{CapabilitySet, remove_capability_from_bounding_set};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};

/// System calls that make a socket which others could be reached by. A pair of connected ones (`socketpair`) reaches nobody
/// else.
const SOCKETS: [libc::c_long; 1] = [libc::SYS_socket];

/// System calls that programs do without when a kernel has none. A ring makes sockets of its own; keys outlive the call.
const MISSING: [libc::c_long; 6] = [
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
];

/// What root keeps: to own, read and give away files, and to become somebody else. Others have nothing anyway.
const KEPT: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETUID);

/// The filters of system calls, made before the fork: they allocate.
#[derive(Debug, Clone, Copy)]
pub(super) struct Confinement([&'static BpfProgram; 2]);

impl Confinement {
    /// Of every contained command. The error says why this machine has none.
    pub(super) fn new() -> Result<Self, &'static str> {
        static FILTERS: OnceLock<Result<[BpfProgram; 2], String>> = OnceLock::new();
        let made = FILTERS.get_or_init(|| {
            let refuse = |calls: &[libc::c_long], errno: i32| {
                let rules = calls.iter().map(|call| (*call, Vec::new())).collect();
                let answer = SeccompAction::Errno(errno.unsigned_abs());
                let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(|error| error.to_string())?;
                SeccompFilter::new(rules, SeccompAction::Allow, answer, arch)
                    .and_then(BpfProgram::try_from)
                    .map_err(|error| error.to_string())
            };
            Ok([refuse(&SOCKETS, libc::EACCES)?, refuse(&MISSING, libc::ENOSYS)?])
        });
        made.as_ref().map(|[sockets, missing]| Self([sockets, missing])).map_err(String::as_str)
    }

    /// Bind this process, and whatever it starts, for good. For a single-threaded child right before exec: plain system calls,
    /// no allocation.
    pub(super) fn bind(&self) -> io::Result<()> {
        // One by one; those that the kernel does not know are not there to be dropped.
        for capability in CapabilitySet::all().difference(KEPT).iter() {
            let _ = remove_capability_from_bounding_set(capability);
        }
        for filter in self.0 {
            // It also sets that nothing executed gains privileges.
            seccompiler::apply_filter(filter).map_err(|error| match error {
                seccompiler::Error::Prctl(error) | seccompiler::Error::Seccomp(error) => error,
                _ => io::Error::from_raw_os_error(libc::EINVAL),
            })?;
        }
        Ok(())
    }
}
