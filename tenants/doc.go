// Package tenants makes one outbox of many: a [Set] is an outmill.Store whose records are in
// the databases of many tenants. Publishers, subscribers, forwarders, inboxes and sagas work
// over it unchanged. docs/tenants.md is for users; this page is the design.
//
// # Names
//
//   - A tenant has a key, and a database with an outbox of its own.
//   - A member is the open store of one tenant. Its name is the tenant's key, so it is unique in
//     the set and stays the same when the store behind it is opened again. Record.Store,
//     Lease.Store, TopicStats.Store and Delivery's Store are that name.
//   - A discovery says which tenants there are, and with which URL or store.
//   - A reader is what claims with one group and one selection of topics. Each has a schedule,
//     which says which members it asks next.
//
// # The states of a member
//
//	opening ──► ready ◄──► failing
//	   │           └───┬─────┘
//	   │               ▼
//	   └────────► draining ──► gone
//
// It moves like this:
//
//   - opening: a discovery has named the tenant. Its store is being opened, its schema ensured
//     where Config.Ensure says so, and all registrations that the set knows are made in it. After
//     a failure it is tried again, after a pause that grows to 30 s. No call reaches it.
//   - ready: it is claimed from and written to.
//   - failing: its last claim or upkeep failed. Claims and upkeep leave it out, for a pause that
//     grows to 30 s; all other calls reach it. The first success makes it ready. Where a call took
//     too long, no call reaches it until a call in the background succeeds.
//   - draining: the tenant is gone from the discovery's answer, or its URL or store has changed.
//     Nothing is claimed from it any more. Leases are settled and extended in it, and handlers of
//     its messages and transactions that it has begun go on.
//   - gone: no lease is in flight, no call is under way, and Config.Linger has passed, in which
//     transactions of the user's end. The store is closed if the set opened it.
//
// A ready member may be at rest: it has nothing to deliver and nothing to tidy (see
// roles.Idle). The set asks every Config.MaxIdle, if it has more than Config.Parallel members.
// Readers and the upkeep leave a member at rest alone, until the next answer, a wake-up or a call of
// this set ends its rest.
//
// With Config.MaxConnections, a member listens for wake-ups, or is polled. At most half of the connections listen. A
// member that becomes ready listens while there is a place; every Config.MaxIdle the busiest get the free places, and
// those of much quieter members. The connections themselves are counted where the stores dial: see
// storekit.ConnectionBudget.
//
// Only the refresh of the set (one at a time, every Config.Refresh and by [Set.Refresh]) moves a
// member to opening, ready and draining. Only the outcome of calls moves it between ready and
// failing, and only the member's own goroutine from draining to gone. [Set.Close] ends all.
//
// A changed tenant is swapped: the new store is opened first, and when it is ready it takes the
// place of the old one, which drains. Until then the old one serves. A lease goes to the store
// that handed it out while that drains, and to the one of that name afterwards.
//
// # What a crash leaves behind
//
// The set keeps nothing on disk. After a crash the leases end in each database, as without a set,
// and the records come again. The next process discovers the tenants and registers its groups in
// each. A record whose tenant has been removed stays in its database.
//
// # Which calls go where
//
//   - To the lease's member, those of several members in parallel: Ack, Abandon, Fail, Release,
//     Snooze and Extend. A lease of a member that is not there is not valid, and ignored. Where
//     some members fail the error is a *storekit.PartialError.
//   - To one member, which the call must name: Append, Transact, and the calls of joins, inbox and
//     sagas. See [WithTenant] for how a call names it.
//   - To a few members, which the schedule of the reader chooses: Claim.
//   - To all members, Config.Parallel at a time: RegisterGroup, Stats, List, Groups, DropGroup,
//     Ensure; and the janitor's calls, which share the limit of the call.
//   - To the member of the context, or else to all: Get, Requeue, Delete, Find, RequeueWhere,
//     DeleteWhere.
//
// A claim, the janitor's calls and RegisterGroup do what they can: a member that fails is
// reported to the log, Config.OnError and [Set.Status], and the call fails only where each member
// does. Other calls for all members return what they have with the error; that of Stats, List,
// Groups, DropGroup, Find, RequeueWhere and DeleteWhere is a *storekit.PartialError, which names
// each member that failed or lacks the role.
//
// Find, RequeueWhere and DeleteWhere go on from the id in Page.Next, which is a place in all
// members, because ids are unique across stores: a page ends at the least id up to which each
// member has looked.
//
// # Ownership
//
// The set passes the owner of a claim on. After a claim failed in one member, nobody knows what
// it leased, so from then on the set claims in that member with another token, which it derives
// from the owner, and only there.
package tenants
