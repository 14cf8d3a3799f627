//! Listings as text.

use forebay_console::table::{Column, Table};
use forebay_norns_api::Code;
use forebay_norns_api::message::{
    DataPath, Listing, Operation, Resource, ServiceStatus, TaskEntry, TaskState,
};
use forebay_units::human;

/// Numbers of tasks.
pub fn status(status: &ServiceStatus) -> String {
    let eta = match status.eta_seconds {
        Some(seconds) => format!("over in about {}", human::seconds(seconds)),
        None => "no estimate".to_owned(),
    };
    format!("{} in progress ({eta}), {} pending\n", status.running, status.pending)
}

/// The dataspaces.
pub fn dataspaces(listing: &Listing) -> String {
    let mut table = Table::new([
        Column::text("dataspace", 0),
        Column::number("used", 0),
        Column::number("capacity", 0),
        Column::text("for", 0),
        Column::text("directory", 0),
    ]);
    for entry in &listing.dataspaces {
        table.push([
            entry.nsid.clone(),
            human::bytes(entry.used),
            human::bytes(entry.space.capacity),
            if entry.space.visible { "all" } else { "jobs" }.to_owned(),
            String::from_utf8_lossy(&entry.space.mount).into_owned(),
        ]);
    }
    table.to_string()
}

/// The jobs.
pub fn jobs(listing: &Listing) -> String {
    let mut table = Table::new([
        Column::number("job", 0),
        Column::text("hosts", 0),
        Column::number("processes", 0),
        Column::text("used of quota", 0),
    ]);
    for entry in &listing.jobs {
        let limit = |(nsid, quota, used): &(String, u64, u64)| {
            format!("{nsid} {} of {}", human::bytes(*used), human::bytes(*quota))
        };
        let limits: Vec<String> = entry.limits.iter().map(limit).collect();
        table.push([
            entry.job.to_string(),
            entry.hosts.join(","),
            entry.processes.len().to_string(),
            limits.join(", "),
        ]);
    }
    table.to_string()
}

/// The tasks.
pub fn tasks(listing: &Listing) -> String {
    let mut table = Table::new([
        Column::number("task", 0),
        Column::number("user", 0),
        Column::number("job", 0),
        Column::text("state", 0),
        Column::number("bytes", 0),
        Column::text("operation", 0),
    ]);
    for entry in &listing.tasks {
        let done = entry.state.total_bytes.saturating_sub(entry.state.pending_bytes);
        table.push([
            entry.task.to_string(),
            entry.uid.to_string(),
            entry.job.map_or_else(|| "-".to_owned(), |job| job.to_string()),
            state(&entry.state),
            format!("{} of {}", human::bytes(done), human::bytes(entry.state.total_bytes)),
            operation(entry),
        ]);
    }
    table.to_string()
}

fn state(state: &TaskState) -> String {
    match state.status {
        Code::PENDING => "pending".to_owned(),
        Code::INPROGRESS => "in progress".to_owned(),
        Code::FINISHED => "finished".to_owned(),
        _ => {
            let error = std::io::Error::from_raw_os_error(state.errno).to_string();
            format!("failed: {}", error.split(" (os error").next().unwrap_or_default())
        }
    }
}

fn operation(entry: &TaskEntry) -> String {
    let name = match entry.request.operation {
        Operation::Copy => "copy",
        Operation::Move => "move",
        Operation::Remove => "remove",
    };
    let source = resource(&entry.request.source);
    match &entry.request.destination {
        Some(destination) => format!("{name} {source} to {}", resource(destination)),
        None => format!("{name} {source}"),
    }
}

fn resource(resource: &Resource) -> String {
    let path = |path: &DataPath| {
        // A name may contain a line feed.
        let text = String::from_utf8_lossy(&path.path).escape_debug().to_string();
        format!("{}:{text}", path.nsid)
    };
    match resource {
        Resource::Memory { size } => format!("{} of memory", human::bytes(*size)),
        Resource::Path(found) => path(found),
        Resource::Remote { host, path: found } => format!("{host}:{}", path(found)),
    }
}
