"""Tools for tests, public: a virtual-time loop, a store that fails on demand, a simulation."""
