//! Tools that misbehave, each in one way, for tests of the host. None of them is what a tool should be.

mod break_class;
mod exhaust;
mod fail;
mod look_around;
mod reach;
mod remember;

deed_sdk::export!(
    exhaust::Spin,
    exhaust::Hog,
    exhaust::Recurse,
    exhaust::Flood,
    exhaust::BigResult,
    exhaust::WaitFor,
    exhaust::Hang,
    exhaust::OpenFiles,
    exhaust::Pester,
    exhaust::LogFlood,
    exhaust::ProgressFlood,
    fail::Panic,
    fail::TrapAfterWrite,
    fail::AppendThenTrap,
    fail::ProgressThenTrap,
    break_class::WritePure,
    break_class::CounterAppend,
    look_around::Escape,
    look_around::Clock,
    look_around::Environment,
    look_around::Connect,
    reach::FetchPure,
    reach::PostTwice,
    reach::Shrug,
    remember::Checkpointed,
    remember::AppendAfterReceipt,
);
