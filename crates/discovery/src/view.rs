//! What the router sees of the fleet at one moment.

use std::{collections::BTreeMap, sync::Arc};

use proto::v1::{Load, Role, WorkerRecord};

/// A live worker.
#[derive(Debug, Clone, PartialEq)]
pub struct Member {
    /// Who it is; fixed for one incarnation.
    pub record: Arc<WorkerRecord>,
    /// What it last said of itself.
    pub load: Load,
}

/// All live workers by name. Cheap to clone.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct View {
    members: Arc<BTreeMap<String, Member>>,
}

impl View {
    /// Every member, by name.
    pub fn members(&self) -> impl Iterator<Item = &Member> {
        self.members.values()
    }

    /// The members of one role that take work.
    pub fn of(&self, role: Role) -> impl Iterator<Item = &Member> {
        self.members().filter(move |member| member.record.role() == role && !member.load.draining)
    }

    /// The member of this name.
    pub fn get(&self, name: &str) -> Option<&Member> {
        self.members.get(name)
    }

    pub(crate) fn edit(&mut self) -> &mut BTreeMap<String, Member> {
        Arc::make_mut(&mut self.members)
    }
}
