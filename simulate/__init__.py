"""The real planner in simulated time: a cost model in place of a device, seeded chats in place of clients. No torch."""
