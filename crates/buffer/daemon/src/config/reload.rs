//! The part of a changed configuration that a running controller applies.

use super::{ConfigError, PoolConfig, StorageConfig};

impl PoolConfig {
    /// This configuration with the entries of `new` that a running controller can change. The
    /// others keep their values, also those of the storage nodes that this configuration has:
    /// their daemons run with them.
    ///
    /// # Errors
    /// `new` changes an entry that a pool keeps for its lifetime.
    pub fn reloaded(&self, new: &PoolConfig) -> Result<PoolConfig, ConfigError> {
        let of_pool = |config: &PoolConfig| {
            (config.name.clone(), config.granularity, config.equalize_fragments)
        };
        if of_pool(self) != of_pool(new) {
            let reason = "a pool's name, granularity and equalize_fragments cannot be changed";
            return Err(ConfigError::about_file(&new.file, reason));
        }
        let node = |new: &StorageConfig| match self.storage_node(&new.name) {
            Some(known) => {
                let (allowed_sources, host) = (new.allowed_sources.clone(), new.host.clone());
                StorageConfig { allowed_sources, host, ..known.clone() }
            }
            None => new.clone(),
        };
        Ok(PoolConfig {
            storage: new.storage.iter().map(node).collect(),
            operator: new.operator,
            only_user: new.only_user,
            stripe: new.stripe,
            max_nodes: new.max_nodes,
            pfs_roots: new.pfs_roots.clone(),
            max_stages_per_node: new.max_stages_per_node,
            max_nodes_per_stage: new.max_nodes_per_stage,
            read_back: new.read_back,
            kept_usage: new.kept_usage,
            persistent_lifetime_ms: new.persistent_lifetime_ms,
            persistent_warning_ms: new.persistent_warning_ms,
            persistent_grace_ms: new.persistent_grace_ms,
            ..self.clone()
        })
    }

    /// Entries in which `new` differs and that a running daemon cannot change.
    pub fn entries_for_restart(&self, new: &PoolConfig) -> Vec<&'static str> {
        let fixed = |node: &StorageConfig| {
            (node.address, node.directory.clone(), node.capacity, node.metadata_memory)
        };
        let changed = |node: &StorageConfig| {
            new.storage_node(&node.name).is_some_and(|new| fixed(new) != fixed(node))
        };
        let entries = [
            ("pool.data_protection", self.data_protection != new.data_protection),
            ("controller.address", self.controller != new.controller),
            ("controller.directory", self.controller_directory != new.controller_directory),
            ("controller.socket", self.controller_socket != new.controller_socket),
            ("controller.audit_log", self.audit_log != new.audit_log),
            ("controller.administrators", self.administrators != new.administrators),
            ("limits", self.limits != new.limits),
            ("scrub", self.scrub != new.scrub),
            (
                "address, directory, capacity or metadata_memory of storage",
                self.storage.iter().any(changed),
            ),
            ("agent.directory", self.agent_directory != new.agent_directory),
            ("agent.socket", self.agent_socket != new.agent_socket),
            ("agent.mount_root", self.mount_root != new.mount_root),
            ("agent.storage_timeout_seconds", self.storage_timeout != new.storage_timeout),
            ("auth", self.auth != new.auth),
        ];
        entries.into_iter().filter(|(_, differs)| *differs).map(|(entry, _)| entry).collect()
    }
}
