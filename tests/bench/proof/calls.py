from proof.part import Part

PART = Part((), lambda mxrun, name: {})
