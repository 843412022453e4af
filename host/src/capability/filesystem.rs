//! `wasi:filesystem`: WASI's own, with the gate in front of everything that changes something, so that a refusal has a
//! reason and the host knows whether a call wrote; and nothing but regular files and directories can be opened.
//!
//! The operator's `deed.toml` is out of reach whatever a call is granted: by its name, in every directory; by another
//! name of the same file, when it is opened for writing; and by a link that leads to where it is not yet. What a tool
//! may still do is to move a directory that holds somebody else's: the workspace's own lies at its root, which has no
//! name here.

use std::io::{self, ErrorKind};
use std::sync::Arc;

use cap_std::fs::{Dir, Metadata, MetadataExt};
use wasmtime::component::{HasData, Linker, Resource};
use wasmtime_wasi::filesystem::{Descriptor, WasiFilesystemCtxView};
use wasmtime_wasi::p2::bindings::filesystem::preopens;
use wasmtime_wasi::p2::bindings::filesystem::types::{
    self, Advice, DescriptorFlags, DescriptorStat, DescriptorType, DirectoryEntry, ErrorCode, HostDescriptor,
    HostDirectoryEntryStream, MetadataHashValue, NewTimestamp, OpenFlags, PathFlags,
};
use wasmtime_wasi::p2::{DynInputStream, DynOutputStream, FsError, FsResult, ReaddirIterator};

use super::{Action, Gate, is_operators};
use crate::operator;

/// How a store's data reaches its files.
pub(crate) trait FilesystemView: Send {
    fn gated_filesystem(&mut self) -> FilesystemCtxView<'_>;
}

/// WASI's own view, and the gate in front of it.
pub(crate) struct FilesystemCtxView<'a> {
    pub(crate) wasi: WasiFilesystemCtxView<'a>,
    /// The workspace; none when the call sees none.
    pub(crate) root: Option<&'a Arc<Dir>>,
    pub(crate) gate: &'a Gate,
}

struct HasFilesystem;

impl HasData for HasFilesystem {
    type Data<'a> = FilesystemCtxView<'a>;
}

/// Replace `wasi:filesystem` of a linker that already has WASI's.
pub(crate) fn add_to_linker<T: FilesystemView + 'static>(linker: &mut Linker<T>) -> wasmtime::Result<()> {
    preopens::add_to_linker::<T, HasFilesystem>(linker, T::gated_filesystem)?;
    types::add_to_linker::<T, HasFilesystem>(linker, T::gated_filesystem)
}

/// The same handle, for another call.
fn again(fd: &Resource<Descriptor>) -> Resource<Descriptor> {
    Resource::new_borrow(fd.rep())
}

impl FilesystemCtxView<'_> {
    /// Refused like anything that a read-only directory refuses: EPERM.
    fn admit_write(&self, path: &str) -> FsResult<()> {
        self.gate.admit(Action::Write(path)).map_err(|_| ErrorCode::NotPermitted.into())
    }

    /// The same of a file that has no name any more, only a handle.
    fn admit_open_write(&self) -> FsResult<()> {
        self.gate.admit(Action::WriteOpen).map_err(|_| ErrorCode::NotPermitted.into())
    }

    /// The directory behind a handle, as one in which paths can be looked at without leaving it.
    fn directory(&self, fd: &Resource<Descriptor>) -> Option<Dir> {
        match self.wasi.table.get(fd) {
            Ok(Descriptor::Dir(directory)) => Some(Dir::from_std_file(directory.dir.try_clone().ok()?)),
            _ => None,
        }
    }

    /// Refuse to open for writing what is the operator's file by another name, or a link that would create it. Other
    /// calls on this workspace wait for their turn, so nothing of deed's changes what was looked at.
    fn refuse_operators(
        &self,
        fd: &Resource<Descriptor>,
        flags: PathFlags,
        creates: bool,
        path: &str,
    ) -> FsResult<()> {
        let Some(directory) = self.directory(fd) else { return Ok(()) };
        let follows = flags.contains(PathFlags::SYMLINK_FOLLOW);
        let found = if follows { directory.metadata(path) } else { directory.symlink_metadata(path) };
        let refused = match found {
            Ok(found) => {
                let operators = self.root.and_then(|root| root.metadata(operator::FILE_NAME).ok());
                let is_it = operators.is_some_and(|operators| is_same(&operators, &found));
                is_it.then_some(Action::WriteAlias(path))
            }
            Err(error) if creates && follows && error.kind() == ErrorKind::NotFound => {
                let is_link = directory.symlink_metadata(path).is_ok_and(|found| found.is_symlink());
                is_link.then_some(Action::CreateThroughLink(path))
            }
            // Whatever is wrong with the path, opening it says so better.
            Err(_) => None,
        };
        match refused {
            Some(action) => self.gate.admit(action).map_err(|_| ErrorCode::NotPermitted.into()),
            None => Ok(()),
        }
    }

    /// What came of an operation on `path`. The guest sees the ordinary error; when that is because the path leads out of
    /// the workspace, the host remembers that it does.
    fn note_escape<T>(&self, fd: &Resource<Descriptor>, path: &str, result: FsResult<T>) -> FsResult<T> {
        if let Err(error) = &result
            && matches!(error.downcast_ref(), Some(ErrorCode::NotPermitted))
            && self
                .directory(fd)
                .is_some_and(|directory| directory.metadata(path).is_err_and(|error| leads_out(&error)))
        {
            let _ = self.gate.admit(Action::Leave(path));
        }
        result
    }

    /// Opening a FIFO blocks until somebody opens its other end, beyond every time limit; a device is no file at all.
    async fn refuse_special(
        &mut self,
        fd: &Resource<Descriptor>,
        flags: PathFlags,
        path: &str,
    ) -> FsResult<()> {
        match self.wasi.stat_at(again(fd), flags, path.to_owned()).await {
            Ok(DescriptorStat {
                type_: DescriptorType::RegularFile | DescriptorType::Directory | DescriptorType::SymbolicLink,
                ..
            })
            // Whatever is wrong with the path, opening it says so better.
            | Err(_) => Ok(()),
            Ok(_) => Err(ErrorCode::Unsupported.into()),
        }
    }
}

/// Whether both are one file, under whatever names.
fn is_same(one: &Metadata, other: &Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

/// Whether a path was not followed since it leads out of its directory. That error is the sandbox's own: one of the
/// system's has a number.
pub(crate) fn leads_out(error: &io::Error) -> bool {
    error.kind() == ErrorKind::PermissionDenied && error.raw_os_error().is_none()
}

// A guest asks for its directories when it first looks for a file.
impl preopens::Host for FilesystemCtxView<'_> {
    fn get_directories(&mut self) -> wasmtime::Result<Vec<(Resource<Descriptor>, String)>> {
        if self.root.is_none() {
            let _ = self.gate.admit(Action::Read("/"));
        }
        preopens::Host::get_directories(&mut self.wasi)
    }
}

impl types::Host for FilesystemCtxView<'_> {
    fn convert_error_code(&mut self, error: FsError) -> wasmtime::Result<ErrorCode> {
        self.wasi.convert_error_code(error)
    }

    fn filesystem_error_code(
        &mut self,
        error: Resource<wasmtime::Error>,
    ) -> wasmtime::Result<Option<ErrorCode>> {
        self.wasi.filesystem_error_code(error)
    }
}

impl HostDescriptor for FilesystemCtxView<'_> {
    async fn open_at(
        &mut self,
        fd: Resource<Descriptor>,
        path_flags: PathFlags,
        path: String,
        open_flags: OpenFlags,
        flags: DescriptorFlags,
    ) -> FsResult<Resource<Descriptor>> {
        let changes = OpenFlags::CREATE | OpenFlags::TRUNCATE | OpenFlags::EXCLUSIVE;
        if open_flags.intersects(changes) || flags.contains(DescriptorFlags::WRITE) {
            self.admit_write(&path)?;
            self.refuse_operators(&fd, path_flags, open_flags.contains(OpenFlags::CREATE), &path)?;
        }
        self.refuse_special(&fd, path_flags, &path).await?;
        let opened = self.wasi.open_at(again(&fd), path_flags, path.clone(), open_flags, flags).await;
        self.note_escape(&fd, &path, opened)
    }

    async fn create_directory_at(&mut self, fd: Resource<Descriptor>, path: String) -> FsResult<()> {
        self.admit_write(&path)?;
        let done = self.wasi.create_directory_at(again(&fd), path.clone()).await;
        self.note_escape(&fd, &path, done)
    }

    async fn link_at(
        &mut self,
        fd: Resource<Descriptor>,
        old_path_flags: PathFlags,
        old_path: String,
        new_fd: Resource<Descriptor>,
        new_path: String,
    ) -> FsResult<()> {
        self.admit_write(&old_path)?;
        self.admit_write(&new_path)?;
        let linked = self
            .wasi
            .link_at(again(&fd), old_path_flags, old_path.clone(), again(&new_fd), new_path.clone())
            .await;
        let linked = self.note_escape(&fd, &old_path, linked);
        self.note_escape(&new_fd, &new_path, linked)
    }

    async fn remove_directory_at(&mut self, fd: Resource<Descriptor>, path: String) -> FsResult<()> {
        self.admit_write(&path)?;
        let done = self.wasi.remove_directory_at(again(&fd), path.clone()).await;
        self.note_escape(&fd, &path, done)
    }

    async fn rename_at(
        &mut self,
        fd: Resource<Descriptor>,
        old_path: String,
        new_fd: Resource<Descriptor>,
        new_path: String,
    ) -> FsResult<()> {
        self.admit_write(&old_path)?;
        self.admit_write(&new_path)?;
        let renamed =
            self.wasi.rename_at(again(&fd), old_path.clone(), again(&new_fd), new_path.clone()).await;
        let renamed = self.note_escape(&fd, &old_path, renamed);
        self.note_escape(&new_fd, &new_path, renamed)
    }

    async fn symlink_at(&mut self, fd: Resource<Descriptor>, target: String, path: String) -> FsResult<()> {
        self.admit_write(&path)?;
        if is_operators(&target) {
            self.gate.admit(Action::WriteAlias(&path)).map_err(|_| ErrorCode::NotPermitted)?;
        }
        let made = self.wasi.symlink_at(again(&fd), target.clone(), path.clone()).await;
        if made.is_err() && target.starts_with('/') {
            let _ = self.gate.admit(Action::Leave(&target));
        }
        self.note_escape(&fd, &path, made)
    }

    async fn unlink_file_at(&mut self, fd: Resource<Descriptor>, path: String) -> FsResult<()> {
        self.admit_write(&path)?;
        let done = self.wasi.unlink_file_at(again(&fd), path.clone()).await;
        self.note_escape(&fd, &path, done)
    }

    async fn set_size(&mut self, fd: Resource<Descriptor>, size: u64) -> FsResult<()> {
        self.admit_open_write()?;
        self.wasi.set_size(fd, size).await
    }

    async fn set_times(
        &mut self,
        fd: Resource<Descriptor>,
        accessed: NewTimestamp,
        modified: NewTimestamp,
    ) -> FsResult<()> {
        self.admit_open_write()?;
        self.wasi.set_times(fd, accessed, modified).await
    }

    async fn set_times_at(
        &mut self,
        fd: Resource<Descriptor>,
        path_flags: PathFlags,
        path: String,
        accessed: NewTimestamp,
        modified: NewTimestamp,
    ) -> FsResult<()> {
        self.admit_write(&path)?;
        let done = self.wasi.set_times_at(again(&fd), path_flags, path.clone(), accessed, modified).await;
        self.note_escape(&fd, &path, done)
    }

    // Writing through a handle: admitted when it was opened for writing, and again here, since a handle alone is no
    // proof of that.

    async fn write(&mut self, fd: Resource<Descriptor>, bytes: Vec<u8>, offset: u64) -> FsResult<u64> {
        self.admit_open_write()?;
        self.wasi.write(fd, bytes, offset).await
    }

    fn write_via_stream(
        &mut self,
        fd: Resource<Descriptor>,
        offset: u64,
    ) -> FsResult<Resource<DynOutputStream>> {
        self.admit_open_write()?;
        self.wasi.write_via_stream(fd, offset)
    }

    fn append_via_stream(&mut self, fd: Resource<Descriptor>) -> FsResult<Resource<DynOutputStream>> {
        self.admit_open_write()?;
        self.wasi.append_via_stream(fd)
    }

    // From here on: reading, as WASI does it.

    async fn advise(
        &mut self,
        fd: Resource<Descriptor>,
        offset: u64,
        len: u64,
        advice: Advice,
    ) -> FsResult<()> {
        self.wasi.advise(fd, offset, len, advice).await
    }

    async fn sync_data(&mut self, fd: Resource<Descriptor>) -> FsResult<()> {
        self.wasi.sync_data(fd).await
    }

    async fn sync(&mut self, fd: Resource<Descriptor>) -> FsResult<()> {
        self.wasi.sync(fd).await
    }

    async fn get_flags(&mut self, fd: Resource<Descriptor>) -> FsResult<DescriptorFlags> {
        self.wasi.get_flags(fd).await
    }

    async fn get_type(&mut self, fd: Resource<Descriptor>) -> FsResult<DescriptorType> {
        self.wasi.get_type(fd).await
    }

    async fn read(&mut self, fd: Resource<Descriptor>, len: u64, offset: u64) -> FsResult<(Vec<u8>, bool)> {
        self.wasi.read(fd, len, offset).await
    }

    async fn read_directory(&mut self, fd: Resource<Descriptor>) -> FsResult<Resource<ReaddirIterator>> {
        self.wasi.read_directory(fd).await
    }

    async fn stat(&mut self, fd: Resource<Descriptor>) -> FsResult<DescriptorStat> {
        self.wasi.stat(fd).await
    }

    async fn stat_at(
        &mut self,
        fd: Resource<Descriptor>,
        flags: PathFlags,
        path: String,
    ) -> FsResult<DescriptorStat> {
        let done = self.wasi.stat_at(again(&fd), flags, path.clone()).await;
        self.note_escape(&fd, &path, done)
    }

    async fn readlink_at(&mut self, fd: Resource<Descriptor>, path: String) -> FsResult<String> {
        let done = self.wasi.readlink_at(again(&fd), path.clone()).await;
        self.note_escape(&fd, &path, done)
    }

    fn read_via_stream(
        &mut self,
        fd: Resource<Descriptor>,
        offset: u64,
    ) -> FsResult<Resource<DynInputStream>> {
        self.wasi.read_via_stream(fd, offset)
    }

    async fn is_same_object(
        &mut self,
        fd: Resource<Descriptor>,
        other: Resource<Descriptor>,
    ) -> wasmtime::Result<bool> {
        self.wasi.is_same_object(fd, other).await
    }

    async fn metadata_hash(&mut self, fd: Resource<Descriptor>) -> FsResult<MetadataHashValue> {
        self.wasi.metadata_hash(fd).await
    }

    async fn metadata_hash_at(
        &mut self,
        fd: Resource<Descriptor>,
        flags: PathFlags,
        path: String,
    ) -> FsResult<MetadataHashValue> {
        let done = self.wasi.metadata_hash_at(again(&fd), flags, path.clone()).await;
        self.note_escape(&fd, &path, done)
    }

    fn drop(&mut self, fd: Resource<Descriptor>) -> wasmtime::Result<()> {
        HostDescriptor::drop(&mut self.wasi, fd)
    }
}

impl HostDirectoryEntryStream for FilesystemCtxView<'_> {
    async fn read_directory_entry(
        &mut self,
        stream: Resource<ReaddirIterator>,
    ) -> FsResult<Option<DirectoryEntry>> {
        self.wasi.read_directory_entry(stream).await
    }

    fn drop(&mut self, stream: Resource<ReaddirIterator>) -> wasmtime::Result<()> {
        HostDirectoryEntryStream::drop(&mut self.wasi, stream)
    }
}
