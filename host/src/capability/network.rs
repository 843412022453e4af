//! `wasi:sockets`: closed to every call, with a reason.

use wasmtime::component::{HasData, Linker, Resource};
use wasmtime_wasi::WasiCtxBuilder;
use wasmtime_wasi::p2::bindings::sockets::ip_name_lookup::{
    self, HostResolveAddressStream, Network, ResolveAddressStream,
};
use wasmtime_wasi::p2::bindings::sockets::network::{self, ErrorCode, IpAddress};
use wasmtime_wasi::p2::{DynPollable, SocketError};
use wasmtime_wasi::sockets::{SocketAddrUse, WasiSocketsCtxView};

use super::{Action, Gate};

/// Refuse every address, through the gate. TCP and UDP count as allowed, since only then is an address asked about.
pub(crate) fn configure(wasi: &mut WasiCtxBuilder, gate: &Gate) {
    let gate = gate.clone();
    wasi.allow_tcp(true).allow_udp(true).socket_addr_check(move |address, purpose| {
        let (address, binds) = (
            address.to_string(),
            matches!(purpose, SocketAddrUse::TcpBind | SocketAddrUse::TcpListen | SocketAddrUse::UdpBind),
        );
        let admitted = gate.admit(if binds { Action::Listen } else { Action::Connect(&address) }).is_ok();
        Box::pin(async move { admitted })
    });
}

/// How a store's data reaches its name lookup.
pub(crate) trait NetworkView: Send {
    fn network(&mut self) -> NetworkCtxView<'_>;
}

pub(crate) struct NetworkCtxView<'a> {
    pub(crate) wasi: WasiSocketsCtxView<'a>,
    pub(crate) gate: &'a Gate,
}

struct HasNetwork;

impl HasData for HasNetwork {
    type Data<'a> = NetworkCtxView<'a>;
}

/// Replace `wasi:sockets/ip-name-lookup` of a linker that already has WASI's.
pub(crate) fn add_to_linker<T: NetworkView + 'static>(linker: &mut Linker<T>) -> wasmtime::Result<()> {
    ip_name_lookup::add_to_linker::<T, HasNetwork>(linker, T::network)
}

impl ip_name_lookup::Host for NetworkCtxView<'_> {
    fn resolve_addresses(
        &mut self,
        network: Resource<Network>,
        name: String,
    ) -> Result<Resource<ResolveAddressStream>, SocketError> {
        if self.gate.admit(Action::Connect(&name)).is_err() {
            return Err(ErrorCode::AccessDenied.into());
        }
        self.wasi.resolve_addresses(network, name)
    }
}

// The error type belongs to `network`, and so does its conversion.
impl network::Host for NetworkCtxView<'_> {
    fn convert_error_code(&mut self, error: SocketError) -> wasmtime::Result<ErrorCode> {
        self.wasi.convert_error_code(error)
    }

    fn network_error_code(
        &mut self,
        error: Resource<wasmtime::Error>,
    ) -> wasmtime::Result<Option<ErrorCode>> {
        self.wasi.network_error_code(error)
    }
}

impl network::HostNetwork for NetworkCtxView<'_> {
    fn drop(&mut self, network: Resource<Network>) -> wasmtime::Result<()> {
        network::HostNetwork::drop(&mut self.wasi, network)
    }
}

impl HostResolveAddressStream for NetworkCtxView<'_> {
    fn resolve_next_address(
        &mut self,
        stream: Resource<ResolveAddressStream>,
    ) -> Result<Option<IpAddress>, SocketError> {
        self.wasi.resolve_next_address(stream)
    }

    fn subscribe(
        &mut self,
        stream: Resource<ResolveAddressStream>,
    ) -> wasmtime::Result<Resource<DynPollable>> {
        self.wasi.subscribe(stream)
    }

    fn drop(&mut self, stream: Resource<ResolveAddressStream>) -> wasmtime::Result<()> {
        HostResolveAddressStream::drop(&mut self.wasi, stream)
    }
}
