import itertools, weakref
_n = itertools.count(1)
_ops = weakref.WeakValueDictionary()
def register(op):
    k = next(_n); _ops[k]=op; return k
def forget(op): pass
def call_compiled(op, args, kwargs): raise NotImplementedError
