//! `wasi:filesystem`: WASI's own, with the gate in front of everything that changes something, so that a refusal has a
//! reason and the host knows whether a call wrote; and nothing but regular files and directories can be opened.

use wasmtime::component::{HasData, Linker, Resource};
use wasmtime_wasi::filesystem::{Descriptor, WasiFilesystemCtxView};
use wasmtime_wasi::p2::bindings::filesystem::types::{
    self, Advice, DescriptorFlags, DescriptorStat, DescriptorType, DirectoryEntry, ErrorCode, HostDescriptor,
    HostDirectoryEntryStream, MetadataHashValue, NewTimestamp, OpenFlags, PathFlags,
};
use wasmtime_wasi::p2::{DynInputStream, DynOutputStream, FsError, FsResult, ReaddirIterator};

use super::{Action, Gate};

/// How a store's data reaches its files.
pub(crate) trait FilesystemView: Send {
    fn gated_filesystem(&mut self) -> FilesystemCtxView<'_>;
}

/// WASI's own view, and the gate in front of it.
pub(crate) struct FilesystemCtxView<'a> {
    pub(crate) wasi: WasiFilesystemCtxView<'a>,
    pub(crate) gate: &'a Gate,
}

struct HasFilesystem;

impl HasData for HasFilesystem {
    type Data<'a> = FilesystemCtxView<'a>;
}

/// Replace `wasi:filesystem/types` of a linker that already has WASI's.
pub(crate) fn add_to_linker<T: FilesystemView + 'static>(linker: &mut Linker<T>) -> wasmtime::Result<()> {
    types::add_to_linker::<T, HasFilesystem>(linker, T::gated_filesystem)
}

/// What the gate is told when a file has no name any more, only a handle.
const OPEN_FILE: &str = "an open file";

impl FilesystemCtxView<'_> {
    /// Refused like anything that a read-only directory refuses: EPERM.
    fn admit_write(&self, path: &str) -> FsResult<()> {
        self.gate.admit(Action::Write(path)).map_err(|_| ErrorCode::NotPermitted.into())
    }

    /// Opening a FIFO blocks until somebody opens its other end, beyond every time limit; a device is no file at all.
    async fn refuse_special(
        &mut self,
        fd: &Resource<Descriptor>,
        flags: PathFlags,
        path: &str,
    ) -> FsResult<()> {
        let fd = Resource::new_borrow(fd.rep());
        match self.wasi.stat_at(fd, flags, path.to_owned()).await {
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
        }
        self.refuse_special(&fd, path_flags, &path).await?;
        self.wasi.open_at(fd, path_flags, path, open_flags, flags).await
    }

    async fn create_directory_at(&mut self, fd: Resource<Descriptor>, path: String) -> FsResult<()> {
        self.admit_write(&path)?;
        self.wasi.create_directory_at(fd, path).await
    }

    async fn link_at(
        &mut self,
        fd: Resource<Descriptor>,
        old_path_flags: PathFlags,
        old_path: String,
        new_fd: Resource<Descriptor>,
        new_path: String,
    ) -> FsResult<()> {
        self.admit_write(&new_path)?;
        self.wasi.link_at(fd, old_path_flags, old_path, new_fd, new_path).await
    }

    async fn remove_directory_at(&mut self, fd: Resource<Descriptor>, path: String) -> FsResult<()> {
        self.admit_write(&path)?;
        self.wasi.remove_directory_at(fd, path).await
    }

    async fn rename_at(
        &mut self,
        fd: Resource<Descriptor>,
        old_path: String,
        new_fd: Resource<Descriptor>,
        new_path: String,
    ) -> FsResult<()> {
        self.admit_write(&new_path)?;
        self.wasi.rename_at(fd, old_path, new_fd, new_path).await
    }

    async fn symlink_at(&mut self, fd: Resource<Descriptor>, target: String, path: String) -> FsResult<()> {
        self.admit_write(&path)?;
        self.wasi.symlink_at(fd, target, path).await
    }

    async fn unlink_file_at(&mut self, fd: Resource<Descriptor>, path: String) -> FsResult<()> {
        self.admit_write(&path)?;
        self.wasi.unlink_file_at(fd, path).await
    }

    async fn set_size(&mut self, fd: Resource<Descriptor>, size: u64) -> FsResult<()> {
        self.admit_write(OPEN_FILE)?;
        self.wasi.set_size(fd, size).await
    }

    async fn set_times(
        &mut self,
        fd: Resource<Descriptor>,
        accessed: NewTimestamp,
        modified: NewTimestamp,
    ) -> FsResult<()> {
        self.admit_write(OPEN_FILE)?;
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
        self.wasi.set_times_at(fd, path_flags, path, accessed, modified).await
    }

    // Writing through a handle: admitted when it was opened for writing, and again here, since a handle alone is no
    // proof of that.

    async fn write(&mut self, fd: Resource<Descriptor>, bytes: Vec<u8>, offset: u64) -> FsResult<u64> {
        self.admit_write(OPEN_FILE)?;
        self.wasi.write(fd, bytes, offset).await
    }

    fn write_via_stream(
        &mut self,
        fd: Resource<Descriptor>,
        offset: u64,
    ) -> FsResult<Resource<DynOutputStream>> {
        self.admit_write(OPEN_FILE)?;
        self.wasi.write_via_stream(fd, offset)
    }

    fn append_via_stream(&mut self, fd: Resource<Descriptor>) -> FsResult<Resource<DynOutputStream>> {
        self.admit_write(OPEN_FILE)?;
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
        self.wasi.stat_at(fd, flags, path).await
    }

    async fn readlink_at(&mut self, fd: Resource<Descriptor>, path: String) -> FsResult<String> {
        self.wasi.readlink_at(fd, path).await
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
        self.wasi.metadata_hash_at(fd, flags, path).await
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
