//! Storage nodes and hosts: their effects carried out, their crashes.

use super::*;

impl World {
    pub(super) fn node_step(&mut self, index: usize, input: node::Input) {
        let Some(node) = &mut self.nodes[index].runs else {
            return;
        };
        self.steps += 1;
        for effect in node.step(input) {
            if self.chance(self.faults.crash) {
                return self.crash_node(index);
            }
            let life = self.nodes[index].life;
            match effect {
                node::Effect::Persist(changes) => apply(&mut self.node_records[index], changes),
                node::Effect::Report(report) => {
                    self.send(Message::ToController(Box::new(controller::Input::Report(
                        report,
                    ))));
                }
                node::Effect::Create(plan) => {
                    let fragment = plan.fragment;
                    self.say(|| format!("node {index} makes {fragment:?} of {:?}", plan.instance));
                    self.disks[index].insert(fragment, plan);
                    let when = self.now + 1 + self.random.below(300);
                    self.at(
                        when,
                        Message::NodeEvent(index, life, node::Input::Created(fragment, Ok(()))),
                    );
                }
                node::Effect::Destroy(plan) => {
                    let fragment = plan.fragment;
                    self.say(|| {
                        format!("node {index} destroys {fragment:?} of {:?}", plan.instance)
                    });
                    if self.disks[index].remove(&fragment).is_some() {
                        self.truth.destroyed(fragment, plan.instance);
                    }
                    let when = self.now + 1 + self.random.below(300);
                    self.at(
                        when,
                        Message::NodeEvent(index, life, node::Input::Destroyed(fragment, Ok(()))),
                    );
                }
                node::Effect::BeginCopy(plan) => self.begin_copy(index, plan),
                node::Effect::StopCopy(stage, attempt) => {
                    if self.copies.contains(&(index, stage, attempt)) {
                        let when = self.now + self.random.below(500);
                        self.at(
                            when,
                            Message::NodeEvent(
                                index,
                                life,
                                node::Input::Copied(stage, attempt, Copied::Stopped),
                            ),
                        );
                    }
                }
            }
        }
    }

    fn begin_copy(&mut self, index: usize, plan: StagePlan) {
        let (stage, attempt) = (plan.stage, plan.attempt);
        self.say(|| {
            format!(
                "node {index} copies {stage:?} attempt {attempt} {:?}",
                plan.what.direction
            )
        });
        match plan.what.direction {
            Direction::In => self.truth.writes_input(stage),
            Direction::Out => {
                let token = self
                    .truth
                    .stages
                    .get(&stage)
                    .map(|(token, _)| token.clone());
                let own = |mount: &MountPlan| {
                    mount.instance == plan.instance
                        && self.truth.labels.get(&plan.instance) == token.as_ref()
                };
                let mounted = self.mounts.iter().flat_map(BTreeMap::values).any(own);
                assert!(!mounted, "{token:?} is staged out while it is mounted");
            }
        }
        self.copies.insert((index, stage, attempt));
        let life = self.nodes[index].life;
        let length = 100 + self.random.below(8000);
        let progress = Progress {
            files: 1,
            files_total: 1,
            bytes: length,
            bytes_total: length,
            all_found: true,
        };
        let outcome = if self.chance(self.faults.fail_copy) {
            self.truth.counts.failed_copies += 1;
            Copied::Failed("the parallel file system is away".into())
        } else {
            Copied::Whole(progress)
        };
        self.at(
            self.now + length / 2,
            Message::NodeEvent(index, life, node::Input::Copying(stage, attempt, progress)),
        );
        self.at(
            self.now + length,
            Message::NodeEvent(index, life, node::Input::Copied(stage, attempt, outcome)),
        );
    }

    pub(super) fn copy_ended(
        &mut self,
        index: usize,
        stage: StageId,
        attempt: u32,
        outcome: &Copied,
    ) {
        self.say(|| format!("node {index} ends copy {stage:?} attempt {attempt}: {outcome:?}"));
        if !self.copies.remove(&(index, stage, attempt)) || !matches!(outcome, Copied::Whole(_)) {
            return;
        }
        self.truth.saved(stage);
    }

    fn crash_node(&mut self, index: usize) {
        self.say(|| format!("node {index} crashes"));
        self.truth.counts.node_crashes += 1;
        self.nodes[index].life += 1;
        self.nodes[index].runs = None;
        let away = if self.random.chance(200) {
            40_000
        } else {
            3000
        };
        self.nodes[index].down = self.now + self.random.below(away);
        self.copies.retain(|(node, _, _)| *node != index);
        if self.chance(self.faults.lose_disk) {
            self.say(|| format!("node {index} loses its disk"));
            self.truth.counts.disks_lost += 1;
            for (_, plan) in std::mem::take(&mut self.disks[index]) {
                self.truth.damaged.insert(plan.instance);
            }
            self.node_records[index].clear();
        }
    }

    pub(super) fn host_step(&mut self, index: usize, input: host::Input) {
        let Some(host) = &mut self.hosts[index].runs else {
            return;
        };
        self.steps += 1;
        for effect in host.step(input) {
            if self.chance(self.faults.crash) {
                return self.crash_host(index);
            }
            let life = self.hosts[index].life;
            match effect {
                host::Effect::Report(report) => {
                    self.send(Message::ToController(Box::new(controller::Input::Report(
                        report,
                    ))));
                }
                host::Effect::Mount(plan) => {
                    let id = plan.activation;
                    self.say(|| format!("host {index} mounts {id:?}"));
                    self.mounts[index].insert(id, plan);
                    let when = self.now + 1 + self.random.below(300);
                    self.at(
                        when,
                        Message::HostEvent(index, life, host::Input::Mounted(id, Ok(()))),
                    );
                }
                host::Effect::Unmount(plan) => {
                    let id = plan.activation;
                    let busy = self.chance(100);
                    if !busy {
                        self.say(|| format!("host {index} unmounts {id:?}"));
                        self.mounts[index].remove(&id);
                    }
                    let outcome = if busy {
                        Err("files are open".to_owned())
                    } else {
                        Ok(())
                    };
                    let when = self.now + 1 + self.random.below(300);
                    self.at(
                        when,
                        Message::HostEvent(index, life, host::Input::Unmounted(id, outcome)),
                    );
                }
            }
        }
    }

    pub(super) fn crash_host(&mut self, index: usize) {
        self.say(|| format!("host {index} crashes"));
        self.truth.counts.host_crashes += 1;
        self.hosts[index].life += 1;
        self.hosts[index].runs = None;
        self.hosts[index].down = self.now + 1 + self.random.below(20_000);
        self.mounts[index].clear();
    }
}
