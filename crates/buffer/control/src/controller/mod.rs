//! The controller: a state machine over DataWarp's objects.
//!
//! ```text
//! set up session + instance -> fragments on storage nodes -> stage in -> activate (mount)
//!   -> deactivate -> stage out -> tear down
//! ```
//!
//! [`Controller::step`] takes an input and the time and returns effects in the order in which they
//! are to be carried out. Records come first, so that nothing is acknowledged or commanded that a
//! crash could undo. Commands follow from the difference between the actual and the desired state
//! of the objects, and are repeated until there is no difference: a controller that is restored
//! from its records continues where it was.
//!
//! Each table of [`State`] owns its records and keeps them consistent; the other modules decide
//! what to do with them.

mod activation;
mod commands;
mod contacts;
mod dispatch;
mod evacuation;
mod evacuation_status;
mod evacuation_table;
mod expiry;
mod fences;
mod instances;
mod job_index;
mod job_status;
mod job_usage;
mod job_view;
mod limits;
mod machine;
mod mount_table;
mod node_loss;
mod objects;
mod pending;
mod quotas;
mod recreate;
mod replacement;
mod replicas;
mod reports;
mod request;
mod request_table;
mod restored;
mod sent_commands;
mod session_table;
mod settings;
mod setup;
mod shares;
mod stage_scheduling;
mod stage_table;
mod staging;
mod stalled_stages;
mod state;
mod status;
mod step;
mod step_scope;
mod storage_table;
mod teardown;
mod waits;

pub use evacuation_status::{EvacuationStatus, EvacuationStep};
pub use expiry::{Expiry, ExpiryStep, Notice};
pub use instances::PlannedAllocation;
pub use job_usage::{HostIo, IoCounters, JobUsage, MeasuredUse, StageUsage};
pub use job_view::{JobView, RequestedStage, Striping, mount_variable};
pub use machine::{Controller, ControllerEffect, ControllerInput};
pub use objects::{
    Activation, Configuration, Fragment, FragmentState, HostReplica, Instance, Mount, MountId,
    MountState, NodeRecord, Pool, RequestProgress, RequestRecord, Session, StageRecord, StageState,
    StateWord, Wait,
};
pub use quotas::{QuotaSubject, UsageStatus};
pub use request::{
    Answer, Cause, Failure, InstanceLoss, InstanceSpec, Lifetime, Outcome, Request,
    RequestEnvelope, RequestId, Setup, truncate_text,
};
pub use request_table::RequestTable;
pub use session_table::SessionTable;
pub use settings::{ReadBack, Settings};
pub use setup::is_valid_token;
pub use shares::{ShareEnd, StageShare};
pub use stage_table::StageTable;
pub use state::State;
pub use status::{
    ActivationStatus, ConfigurationStatus, ControlStatus, FragmentStatus, InstanceStatus,
    NodeStatus, PoolStatus, SessionStatus, StageStatus,
};
pub use storage_table::StorageTable;
