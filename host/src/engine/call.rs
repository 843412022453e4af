//! One call: a fresh instance, a time limit, and what to make of its end.

use std::sync::Arc;

use tokio::time::sleep;
use wasmtime::{CallHook, Store};

use super::Engine;
use super::bindings::deed::tool::types as wit;
use super::descriptor::Described;
use super::end::{Raw, accept, accept_verdict, failure, returned, sync};
use super::exports::Exports;
use super::functions::Functions;
use super::limits::{DESCRIBE_TIMEOUT, Limits};
use super::plugin::{LoadError, Plugin};
use super::request::{
    Abort, AbortReason, CallContext, CallEnd, CallObserver, CallRequest, CancelToken, Grants, NoObserver,
};
use super::state::{CallState, Traces};
use super::types::{EffectPlan, EffectState, FailureKind, ToolFailure, Verdict};

/// How a call went, and what of it outlives its instance; or why it did not begin.
type Run<T> = Result<(Traces, Raw<T>), Abort>;

/// What a tool returns.
type Returned = Result<wit::Output, wit::Error>;

/// What `describe` and `refine` find as randomness and clock: always the same, unless somebody wants to see whether their
/// answers depend on it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Draw(pub(super) u8);

/// How far the clocks of two neighbouring draws are apart. A day shows in every way to write an instant.
const DRAW_MS: u64 = 24 * 60 * 60 * 1000;

impl Engine {
    /// Narrow the class of a call, in an instance to which everything is refused. None when the tool does not refine,
    /// when it fails or traps, or when it names a riskier class than it declares: then the declared class stands.
    pub fn refine(&self, plugin: &Plugin, tool: &str, args: &str) -> Option<EffectPlan> {
        let declared = plugin.tool(tool).filter(|tool| tool.traits.refines)?.effect;
        let plan: EffectPlan =
            self.ask_refine(self.exports(plugin).ok()?, tool, args, Draw(0)).ok()?.ok()?.into();
        (plan.effect <= declared).then_some(plan)
    }

    /// Run one call to its end, on this thread.
    ///
    /// When it is effectful and changed files by other means than the synced ones, their file system is synced before
    /// this returns, so that the outcome can be recorded.
    pub fn invoke(&self, plugin: &Plugin, request: &CallRequest<'_>) -> CallEnd {
        if let Err(failure) = known(plugin, request.tool) {
            return CallEnd::Failed(failure);
        }
        let exports = match self.exports(plugin) {
            Ok(exports) => exports,
            Err(error) => return CallEnd::Aborted(not_ready(error)),
        };
        let run = match exports {
            Exports::Tools(tools, _) => self.run(request, async |store| {
                let instance = tools.instantiate_async(&mut *store).await?;
                let tools = instance.deed_tool_tools();
                tools.call_invoke(store, &context(request), request.tool, request.args).await
            }),
            Exports::Functions(functions) => match self.call_function(functions, request) {
                Ok(run) => run,
                Err(failure) => return CallEnd::Failed(failure),
            },
        };
        let (traces, raw) = match run {
            Ok(run) => run,
            Err(abort) => return CallEnd::Aborted(abort),
        };
        if let Err(abort) = sync(request, &traces) {
            return CallEnd::Aborted(abort);
        }
        match returned(request, &traces, raw) {
            Ok(Ok(output)) => match accept(request, &traces, output) {
                Ok(output) => CallEnd::Completed(output),
                Err(end) => end,
            },
            Ok(Err(error)) => CallEnd::Failed(failure(error, &traces)),
            Err(abort) => CallEnd::Aborted(abort),
        }
    }

    /// Call a plain function. Arguments that stand for no values of its types are its failure, before anything runs.
    fn call_function(
        &self,
        functions: &Functions,
        request: &CallRequest<'_>,
    ) -> Result<Run<Returned>, ToolFailure> {
        let function = functions.get(request.tool).ok_or_else(|| ToolFailure {
            kind: FailureKind::NotFound,
            message: format!("there is no function `{}`", request.tool),
            effect: EffectState::NotApplied,
            refusals: Vec::new(),
        })?;
        let arguments = function.arguments(request.args).map_err(|misfit| ToolFailure {
            kind: FailureKind::InvalidArguments,
            message: format!("the arguments of `{}` do not fit: {misfit}", request.tool),
            effect: EffectState::NotApplied,
            refusals: Vec::new(),
        })?;
        Ok(self.run(request, async |store| {
            let returned = functions.call(store, function, &arguments).await?;
            function
                .outcome(returned.as_ref())
                .ok_or_else(|| wasmtime::Error::msg("it returned a value of another type than it says"))
        }))
    }

    /// Ask the tool whether an earlier attempt landed. The grants must be a pure call's: a probe changes nothing.
    ///
    /// The error says why there is no verdict: the tool has no probe, failed, or did not come to its end.
    pub fn probe(&self, plugin: &Plugin, request: &CallRequest<'_>) -> Result<Verdict, CallEnd> {
        known(plugin, request.tool).map_err(CallEnd::Failed)?;
        let exports = self.exports(plugin).map_err(|error| CallEnd::Aborted(not_ready(error)))?;
        let probing = exports.probing().filter(|_| plugin.probes(request.tool));
        let Some(probing) = probing else {
            return Err(CallEnd::Failed(ToolFailure {
                kind: FailureKind::Unavailable,
                message: format!("`{}` has no probe", request.tool),
                effect: EffectState::NotApplied,
                refusals: Vec::new(),
            }));
        };
        let grants = request.grants.for_probe();
        let request = &CallRequest { grants: &grants, ..*request };
        let (traces, raw) = self
            .run(request, async |store| {
                let instance = probing.instantiate_async(&mut *store).await?;
                let reconcile = instance.deed_tool_reconcile();
                reconcile.call_probe(store, &context(request), request.tool, request.args).await
            })
            .map_err(CallEnd::Aborted)?;
        let answer = returned(request, &traces, raw).map_err(CallEnd::Aborted)?;
        let verdict = answer.map_err(|error| CallEnd::Failed(failure(error, &traces)))?;
        accept_verdict(request, &traces, verdict)
    }

    /// What the tool makes of the class of a call.
    pub(super) fn ask_refine(
        &self,
        exports: &Exports,
        tool: &str,
        args: &str,
        draw: Draw,
    ) -> Result<Result<wit::EffectPlan, wit::Error>, Abort> {
        let Exports::Tools(tools, _) = exports else {
            let message = format!("`{tool}` is a plain function, whose class the operator gives");
            let (kind, effect) = (wit::ErrorKind::NotFound, wit::EffectState::NotApplied);
            return Ok(Err(wit::Error { kind, message, effect }));
        };
        self.without_capabilities(tool, draw, async |store| {
            let instance = tools.instantiate_async(&mut *store).await?;
            instance.deed_tool_tools().call_refine(store, tool, args).await
        })
    }

    /// What the component says of its tools, or what its functions come to.
    pub(super) fn describe(&self, exports: &Exports, draw: Draw) -> Result<Vec<Described>, Abort> {
        match exports {
            Exports::Functions(functions) => Ok(functions.described()),
            Exports::Tools(tools, _) => {
                let described = self.without_capabilities("describe", draw, async |store| {
                    let instance = tools.instantiate_async(&mut *store).await?;
                    instance.deed_tool_tools().call_describe(store).await
                })?;
                Ok(described.into_iter().map(Described::from).collect())
            }
        }
    }

    fn without_capabilities<T>(
        &self,
        tool: &str,
        Draw(draw): Draw,
        body: impl AsyncFnOnce(&mut Store<CallState>) -> wasmtime::Result<T>,
    ) -> Result<T, Abort> {
        let observer: Arc<dyn CallObserver> = Arc::new(NoObserver);
        let request = CallRequest {
            tool,
            args: "",
            grants: &Grants::nothing(),
            context: CallContext { idempotency_key: "", attempt: 1, session: "", receipt: None },
            seed: [draw; 32],
            clock_ms: u64::from(draw) * DRAW_MS,
            timeout: DESCRIBE_TIMEOUT,
            limits: &Limits::default(),
            observer: &observer,
            cancel: &CancelToken::new(),
            stage: None,
            lock: None,
        };
        let (traces, raw) = self.run(&request, body)?;
        returned(&request, &traces, raw)
    }

    /// Give `body` a fresh store, and end it when its time is up. Waits for a free instance first.
    fn run<T>(
        &self,
        request: &CallRequest<'_>,
        body: impl AsyncFnOnce(&mut Store<CallState>) -> wasmtime::Result<T>,
    ) -> Run<T> {
        let (state, traces) =
            CallState::new(request, &self.surroundings, self.started).map_err(|error| Abort {
                reason: AbortReason::Host,
                message: error.to_string(),
                may_have_effect: false,
                refusals: Vec::new(),
            })?;
        let raw = self.runtime.block_on(async {
            let _slot = tokio::select! {
                biased;
                () = request.cancel.cancelled() => return Raw::NeverBegun,
                slot = self.slots.acquire() => slot.expect("the semaphore is never closed"),
            };
            let call = async {
                let mut store = Store::new(&self.wasm, state);
                store.limiter(|state| &mut state.usage);
                store.set_hostcall_fuel(request.limits.host_call_bytes);
                if request.observer.awaits_host_call() {
                    let observer = Arc::clone(request.observer);
                    let mut first = true;
                    store.call_hook(move |_, transition| {
                        if matches!(transition, CallHook::CallingHost) && std::mem::take(&mut first) {
                            observer.first_host_call();
                        }
                        Ok(())
                    });
                }
                self.processors.share(&mut store, body).await
            };
            let cancelled = async {
                request.cancel.cancelled().await;
                sleep(request.limits.cancel_grace).await;
            };
            tokio::select! {
                biased;
                result = call => match result {
                    Ok(value) => Raw::Returned(value),
                    Err(error) => Raw::Trapped { error, stack_bytes: self.stack_bytes },
                },
                () = sleep(request.timeout) => Raw::OutOfTime,
                () = cancelled => Raw::Cancelled,
            }
        });
        Ok((traces, raw))
    }
}

/// The component could not be compiled, so nothing ran.
fn not_ready(error: &LoadError) -> Abort {
    Abort {
        reason: AbortReason::Host,
        message: error.to_string(),
        may_have_effect: false,
        refusals: Vec::new(),
    }
}

fn known(plugin: &Plugin, tool: &str) -> Result<(), ToolFailure> {
    if plugin.tool(tool).is_some() {
        return Ok(());
    }
    let names: Vec<String> = plugin.tools().iter().map(|tool| format!("`{}`", tool.name)).collect();
    Err(ToolFailure {
        kind: FailureKind::NotFound,
        message: format!("plugin `{}` has no tool `{tool}`; it has {}", plugin.name(), names.join(", ")),
        effect: EffectState::NotApplied,
        refusals: Vec::new(),
    })
}

fn context(request: &CallRequest<'_>) -> wit::CallContext {
    wit::CallContext {
        idempotency_key: request.context.idempotency_key.to_owned(),
        attempt: request.context.attempt,
        session: request.context.session.to_owned(),
        deadline_ms: u64::try_from(request.timeout.as_millis()).unwrap_or(u64::MAX),
        receipt: request.context.receipt.map(<[u8]>::to_vec),
    }
}
